"""The engine: loaded by the first who needs it, while others wait; a failure is reported and retried."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from controller_host.guest.limits import CompileBounds
from controller_host.guest.runtime import Runtime
from controller_host.module import loading
from controller_host.module.loading import EngineUnavailable, Loading
from controller_host.scheduler.guests import LocalGuests
from controller_host.timings import Timings, TurnTimings
from support.guests import wat
from support.guests.lifetimes import COUNTING, Host

DEADLINE = 10.0


class Engine:
    """An engine: ``failures`` are raised first, one a try; a try waits for ``let``."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.tries = 0
        self.started, self.let = threading.Event(), threading.Event()
        self.let.set()
        self.closed = False

    def load(self) -> Runtime:
        self.tries += 1
        self.started.set()
        assert self.let.wait(DEADLINE)
        if self.failures:
            raise self.failures.pop(0)
        return cast("Runtime", self)

    def close(self) -> None:
        self.closed = True


def test_concurrent_requests_share_one_load() -> None:
    engine = Engine()
    engine.let.clear()
    reported: list[str] = []
    item = Loading(engine.load, reported.append)
    with ThreadPoolExecutor(8) as pool:
        requested = [pool.submit(item.get) for _ in range(8)]
        assert engine.started.wait(DEADLINE)
        engine.let.set()
        assert {id(answer.result(DEADLINE)) for answer in requested} == {id(engine)}
    assert (engine.tries, reported) == (1, [""])


def test_a_failed_load_is_reported_once_and_retried_later() -> None:
    engine = Engine(ImportError("libc.so.6: version `GLIBC_2.38' not found\nin wasmtime"))
    reported: list[str] = []
    now = [100.0]
    item = Loading(engine.load, reported.append, lambda: now[0])
    for _ in range(3):
        with pytest.raises(EngineUnavailable, match=r"ImportError: .*GLIBC_2\.38'"):
            item.get()
    assert (engine.tries, len(reported)) == (1, 1)
    now[0] += TurnTimings().engine
    assert item.get() is cast("Any", engine)
    assert (engine.tries, reported[1:]) == (2, [""])


def test_closing_during_the_load_closes_the_module() -> None:
    engine = Engine()
    engine.let.clear()
    item = Loading(engine.load)
    with ThreadPoolExecutor(1) as pool:
        requested = pool.submit(item.get)
        assert engine.started.wait(DEADLINE)
        item.close()
        engine.let.set()
        requested.result(DEADLINE)
    assert engine.closed
    later = Loading(engine.load)
    later.close()
    with pytest.raises(EngineUnavailable, match="stops"):
        later.get()


def test_the_engine_is_not_loaded_while_files_are_managed_without_it() -> None:
    engine = Engine()
    item = Loading(engine.load)
    with ThreadPoolExecutor(1) as pool:
        with item.if_loaded() as there:
            assert there is None
            requested = pool.submit(item.get)
            assert not engine.started.wait(0.05)
        requested.result(DEADLINE)
    with item.if_loaded() as there:
        assert there is cast("Any", engine)


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("controller_host.guest.runtime")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "controller_host.guest.instance", None)
    with pytest.raises(EngineUnavailable, match=r"ModuleNotFoundError: import of controller_host\.guest\.instance"):
        loading.local(tmp_path, CompileBounds(), lambda _: None).get()


def test_without_the_engine_the_state_on_disk_stays_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    prepared = host.prepared(wat.text(COUNTING))
    host.lifecycle.adopt(prepared)
    host.call("a")
    assert host.lifecycle.suspend()
    host.close()
    failures = [OSError("no such library")]

    def load(*arguments: Any) -> Runtime:
        if failures:
            raise failures.pop()
        return Runtime(*arguments)

    monkeypatch.setattr(loading, "_runtime", load)
    later = Host(tmp_path, Timings(turns=TurnTimings(engine=0.0)))
    with pytest.raises(EngineUnavailable, match="no such library"):
        later.lifecycle.adopt(prepared)
    later.lifecycle.adopt(prepared)
    assert later.lifecycle.snapshot
    assert later.done("a")
    later.close()


def test_a_sweep_needs_no_engine(tmp_path: Path) -> None:
    kept, deleted = "a" * 64, "b" * 64
    guests = LocalGuests(tmp_path)
    for sha256 in (kept, deleted):
        for kind in ("cwasm", "json"):
            (tmp_path / "modules" / f"{sha256}.key.{kind}").touch()
    (tmp_path / "modules" / f".{kept}.key.cwasm.1.partial").touch()
    guests.sweep((), {kept})
    assert sorted(path.name for path in (tmp_path / "modules").iterdir()) == [f"{kept}.key.cwasm", f"{kept}.key.json"]
    guests.require()
    guests.sweep_modules({kept})
    assert list((tmp_path / "modules").iterdir()) == [], "of another engine"
    guests.close()
