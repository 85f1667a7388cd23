"""A process of a forkserver is one like any other: with variables, a log, an end; and none outlives the forkserver."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from support.suite.forkserver import Forkserver, forkserver

MODULE = "support.suite.forked_child"


def content(log: Path) -> str:
    return log.read_text() if log.exists() else ""


async def until_logged(log: Path) -> None:
    async with asyncio.timeout(30):
        while not content(log).endswith("\n"):  # noqa: ASYNC110 (a process writes it)
            await asyncio.sleep(0.02)


async def test_each_has_variables_arguments_a_log_and_an_end_of_its_own(tmp_path: Path) -> None:
    with forkserver(MODULE, NAME="nobody") as made:
        first = await made.have({"NAME": "first"}, ["run", "3"], tmp_path / "first")
        second = await made.have({}, ["0"], tmp_path / "second")
        assert [await first.wait(), await second.wait()] == [3, 0]
    assert [content(tmp_path / "first"), content(tmp_path / "second")] == ["first run 3\n", "nobody 0\n"]


async def test_a_killed_process_is_reported_with_its_signal(tmp_path: Path) -> None:
    with forkserver(MODULE) as made:
        child = await made.have({}, ["wait"], tmp_path / "log")
        await until_logged(tmp_path / "log")
        child.send_signal(signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL


async def test_one_has_no_files_but_its_own(tmp_path: Path) -> None:
    with forkserver(MODULE) as made:
        child = await made.have({}, ["wait"], tmp_path / "log")
        await until_logged(tmp_path / "log")
        assert sorted(os.listdir(f"/proc/{child.pid}/fd")) == ["0", "1", "2"]  # noqa: PTH208 (of a process)


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_none_outlives_the_forkserver(tmp_path: Path, how: str) -> None:
    with forkserver(MODULE) as made:
        child = await made.have({}, ["wait"], tmp_path / "log")
        await until_logged(tmp_path / "log")
        if how == "killed":
            made.kill()
    await ended(child.pid)


async def ended(pid: int) -> None:
    async with asyncio.timeout(30):
        while psutil.pid_exists(pid):  # noqa: ASYNC110 (a process of somebody else's)
            await asyncio.sleep(0.02)


async def test_a_process_without_a_waiter_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forkserver(MODULE) as made:
        born = []
        start = Forkserver.start

        def slow(self: Forkserver, *given: object) -> object:
            born.append(start(self, *given))  # type: ignore[arg-type]
            return born[0]

        monkeypatch.setattr(Forkserver, "start", slow)
        asking = asyncio.create_task(made.have({}, ["wait"], tmp_path / "log"))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await born[0].wait() == -signal.SIGKILL  # type: ignore[attr-defined]
