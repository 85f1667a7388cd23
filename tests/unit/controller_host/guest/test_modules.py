"""Compiled modules: kept on disk by digest, in memory as long as they are used, and never run when damaged."""

from __future__ import annotations

import errno
import gc
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from controller_host.guest import modules as modules_module
from controller_host.guest.compiler import Compiler
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module, Modules
from support.guests import wat


def distinct(number: int) -> bytes:
    return wat.guest(more=f"(func (result i32) i32.const {number})")


def works(modules: Modules, sha256: str) -> bool:
    module = modules.cached(sha256)
    assert module is not None
    return Instance.boot(module, Limits(), wat.RecordingHost()).call("reconcile", b"{}").answer == b"{}"


def test_a_module_is_found_by_its_digest_by_the_next_process(tmp_path: Path) -> None:
    sha256 = Modules(tmp_path / "m").load(wat.guest()).sha256
    again = Modules(tmp_path / "m")
    assert works(again, sha256)
    assert again.cached("0" * 64) is None
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "m").iterdir()} == {0o600}


@pytest.mark.parametrize("kind", ["cwasm", "json"])
@pytest.mark.parametrize("damage", ["emptied", "truncated", "changed in a bit", "removed"])
def test_a_damaged_file_is_never_run_and_compiled_again(kind: str, damage: str, tmp_path: Path) -> None:
    sha256 = Modules(tmp_path / "m").load(wat.guest()).sha256
    (path,) = (tmp_path / "m").glob(f"*.{kind}")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    written = {"emptied": b"", "truncated": raw[: len(raw) // 2], "changed in a bit": raw}
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(written[damage])
    again = Modules(tmp_path / "m")
    assert again.cached(sha256) is None
    again.load(wat.guest())
    assert works(again, sha256)


def test_a_module_of_another_engine_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = Modules(tmp_path / "m").load(wat.guest()).sha256
    monkeypatch.setattr("controller_host.guest.rewriting.REVISION", 99)
    assert Modules(tmp_path / "m").cached(sha256) is None


def test_unused_modules_leave_memory_and_used_ones_stay(tmp_path: Path) -> None:
    modules = Modules(tmp_path / "m", most_in_memory=2)
    used = modules.load(distinct(0))
    for number in range(1, 6):
        modules.load(distinct(number))
    gc.collect()
    assert modules.in_memory() == 3
    assert modules.cached(used.sha256) is used


def test_a_module_is_compiled_once_however_many_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = []
    original = Compiler.compile

    def counted(compiler: Compiler, wasm: bytes) -> tuple[dict[str, Any], bytes]:
        count.append(1)
        return original(compiler, wasm)

    monkeypatch.setattr(Compiler, "compile", counted)
    modules = Modules(tmp_path / "m")
    gate = threading.Barrier(8)

    def load(_: int) -> Module:
        gate.wait()
        return modules.load(wat.guest())

    with ThreadPoolExecutor(8) as pool:
        assert len({id(module) for module in list(pool.map(load, range(8)))}) == 1
    assert len(count) == 1


def test_those_that_read_one_module_from_disk_at_once_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = Modules(tmp_path / "m").load(wat.guest()).sha256
    modules = Modules(tmp_path / "m")
    gate = threading.Barrier(2)
    original = modules._from_disk

    def together(digest: str) -> Module | None:
        read = original(digest)
        gate.wait(10)
        return read

    monkeypatch.setattr(modules, "_from_disk", together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(modules.cached, [sha256] * 2)
    assert first is not None
    assert first is second


def test_a_module_runs_from_memory_where_the_disk_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    modules = Modules(tmp_path / "m")
    monkeypatch.setattr(modules_module, "write_whole", full)
    module = modules.load(wat.guest())
    assert Instance.boot(module, Limits(), wat.RecordingHost()).call("reconcile", b"{}").answer == b"{}"
    assert list((tmp_path / "m").iterdir()) == []


def test_sweeping_keeps_what_is_wanted(tmp_path: Path) -> None:
    modules = Modules(tmp_path / "m")
    kept, deleted = modules.load(distinct(1)).sha256, modules.load(distinct(2)).sha256
    modules.sweep([kept], young_seconds=0.0)
    again = Modules(tmp_path / "m")
    assert again.cached(deleted) is None
    assert works(again, kept)


def test_a_directory_that_others_may_write_is_closed_and_a_link_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    Modules(tmp_path / "open")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(PermissionError, match="TRELLIS_CONTROLLER_DATA_DIR"):
        Modules(tmp_path / "link")


def files(directory: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in directory.iterdir()}


def test_a_sweep_keeps_running_and_just_requested_modules(tmp_path: Path) -> None:
    modules = Modules(tmp_path / "m")
    runs = modules.load(distinct(1))
    old, requested = (modules.load(distinct(number)).sha256 for number in (2, 3))
    modules.sweep([], young_seconds=60.0)
    assert files(tmp_path / "m") == {runs.sha256, old, requested}, "all were asked for a moment ago"
    modules.sweep([], young_seconds=0.0)
    assert files(tmp_path / "m") == {runs.sha256}
    assert modules.in_memory() == 1
    assert modules.cached(old) is None
    runs_again = modules.load(distinct(3)).sha256
    del runs
    modules.sweep([runs_again], young_seconds=0.0)
    assert files(tmp_path / "m") == {runs_again}


def test_a_module_requested_during_a_sweep_is_cached_or_recompiled(tmp_path: Path) -> None:
    modules = Modules(tmp_path / "m", most_in_memory=1)
    wasm = [distinct(number) for number in range(6)]
    over = threading.Event()

    def sweep() -> None:
        while not over.is_set():
            modules.sweep([], young_seconds=0.0)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            for module in pool.map(modules.load, wasm * 5):
                assert Instance.boot(module, Limits(), wat.RecordingHost()).call("reconcile", b"{}").answer == b"{}"
    finally:
        over.set()
        sweeper.join()
    del module
    used = modules.load(wasm[0])
    modules.sweep([], young_seconds=0.0)
    assert files(tmp_path / "m") == {used.sha256}
