"""A guest that slept is as one that did not: whatever it did, however often it slept."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_host.guest import pages, snapshot_file
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module, Modules
from controller_host.guest.snapshots import Identity, SnapshotFailed, SnapshotLost, Snapshots
from support.guests import tape, wat

TESTS = Path(__file__).parents[3]
SLEEP = None
ADDRESSES = st.integers(0, 16) | st.integers(200, 65000) | st.integers(70000, 3 * 65536 - 4)
NUMBERS = st.integers(0, 2**32 - 1) | st.just(0)
COMMANDS = st.one_of(
    st.tuples(st.just(tape.STORE), ADDRESSES, NUMBERS),
    st.tuples(st.just(tape.GROW), st.integers(0, 5), st.just(0)),
    st.tuples(st.sampled_from([tape.SET_I32, tape.SET_I64, tape.SET_F32, tape.SET_F64]), NUMBERS, NUMBERS),
    st.builds(lambda page: (tape.STORE, (page + 1) * 65536 - 8, 77), st.integers(0, 2)),
)


@pytest.fixture
def snapshots(tmp_path: Path) -> Iterator[Snapshots]:
    opened = Snapshots(tmp_path / "snapshots")
    yield opened
    opened.close()


def identity(module: Module, uid: str = "a-controller") -> Identity:
    return Identity(uid, module.sha256, module.engine.key, "configured")


def slept(instance: Instance, snapshots: Snapshots, uid: str = "a-controller") -> Instance:
    """Put the guest to disk and bring it back."""
    who = identity(instance.module, uid)
    instance.suspend(snapshots, who)
    found = snapshots.find(who)
    assert found is not None
    return Instance.wake(instance.module, tape.LIMITS, wat.RecordingHost(), found)


@pytest.fixture(params=["the kernel tells what changed", "all is compared"])
def reports_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "all is compared":
        monkeypatch.setattr(pages, "private", lambda *_: None)
    return bool(request.param != "all is compared")


def test_the_kernel_reports_changed_pages() -> None:
    """Without this the other tests would prove the fallback twice."""
    area = mmap.mmap(-1, 4 * pages.PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area[2 * pages.PAGE] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert pages.private(address, 4 * pages.PAGE) == [(2, 3)]


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(COMMANDS, max_size=6) | st.just(SLEEP), max_size=12), compared=st.booleans())
def test_any_sequence_with_sleep_gives_what_it_gives_without(
    modules: Modules, rows: list[list[tape.Command] | None], *, compared: bool
) -> None:
    module = tape.module(modules)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        if compared:
            patch.setattr(pages, "private", lambda *_: None)
        snapshots = Snapshots(Path(directory) / "snapshots")
        awake, sleeper = tape.boot(module), tape.boot(module)
        for row in rows:
            if row is None:
                sleeper = slept(sleeper, snapshots)
            else:
                tape.do(awake, *row)
                tape.do(sleeper, *row)
        assert tape.state(sleeper) == tape.state(awake)
        sleeper.close()
        snapshots.close()


def test_a_hundred_sleeps_lose_nothing(modules: Modules, snapshots: Snapshots, reports_pages: bool) -> None:  # noqa: ARG001
    module = tape.module(modules)
    awake, sleeper = tape.boot(module), tape.boot(module)
    last = 0
    for number in range(100):
        row = [
            (tape.STORE, 300 + number * 4096 % 60000, number),
            (tape.SET_I32, number, 0), (tape.SET_I64, number, ~number & 0xFFFF_FFFF),
            (tape.SET_F32, 0x7FA0_0000 | number, 0), (tape.SET_F64, 0x7FF4_0000, number),
            (tape.GROW, number % 10 == 3, 0),
        ]  # fmt: skip
        tape.do(awake, *row)
        tape.do(sleeper, *row)
        sleeper = slept(sleeper, snapshots)
        now = tape.clock(sleeper)
        assert now > last
        last = now
    assert tape.state(sleeper)[:128] == tape.state(awake)[:128]
    assert tape.state(sleeper)[200:] == tape.state(awake)[200:]
    assert sleeper.guest.memory.size() == 13 * 65536


def test_waking_runs_nothing_of_the_guest_again(modules: Modules, snapshots: Snapshots) -> None:
    more = """(global $starts (mut i32) i32.const 0)
      (func $count (global.set $starts (i32.add (global.get $starts) (i32.const 1)))
        (i32.store (i32.const 8) (global.get $starts)))
      (func $start call $count) (start $start) (func (export "_initialize") call $count)"""
    guest = Instance.boot(modules.load(wat.guest(more=more)), Limits(), wat.RecordingHost())
    guest = slept(slept(guest, snapshots), snapshots)
    assert guest.guest.memory.read(8, 4) == b"\2\0\0\0"


def test_a_page_that_became_zero_again_is_zero(modules: Modules, snapshots: Snapshots, reports_pages: bool) -> None:  # noqa: ARG001
    guest = tape.boot(tape.module(modules))
    tape.do(guest, (tape.STORE, 40000, 5))
    guest = slept(guest, snapshots)
    tape.do(guest, (tape.STORE, 40000, 0))
    guest = slept(guest, snapshots)
    assert guest.guest.memory.read(40000, 4) == bytes(4)


def test_only_changed_pages_are_written_and_untouched_pages_take_no_space(
    modules: Modules, snapshots: Snapshots
) -> None:
    module = tape.module(modules, pages=100)
    guest = tape.boot(module)
    tape.do(guest, *((tape.STORE, 8 * 65536 + page * pages.PAGE, 1) for page in range(50)))
    first = guest.suspend(snapshots, identity(module))
    assert 50 <= first.pages <= 60
    assert first.disk_bytes < 1 << 20
    found = snapshots.find(identity(module))
    assert found is not None
    assert found.memory_bytes == 100 * 65536
    guest = Instance.wake(module, tape.LIMITS, wat.RecordingHost(), found)
    assert guest.resident_bytes() == 0
    tape.do(guest, (tape.STORE, 8 * 65536, 2))
    assert guest.resident_bytes() <= 4 * pages.PAGE
    assert guest.suspend(snapshots, identity(module)).pages <= 4


def test_initial_data_far_up_in_memory_is_kept_and_so_are_writes_on_both_sides_of_it(
    modules: Modules,
    snapshots: Snapshots,
    reports_pages: bool,  # noqa: ARG001
) -> None:
    at = 60 * 65536 + 100
    guest = tape.boot(tape.module(modules, pages=100, more=wat.data(at, b"far up")))
    tape.do(guest, (tape.STORE, at - 65536, 1), (tape.STORE, at + 65536, 2), (tape.STORE, at + 8, 3))
    guest.suspend(snapshots, identity(guest.module))
    found = snapshots.find(identity(guest.module))
    assert found is not None
    woken = Instance.wake(guest.module, tape.LIMITS, wat.RecordingHost(), found)
    assert [woken.guest.memory.read(at + where, 1)[0] for where in (-65536, 65536, 8)] == [1, 2, 3]
    assert (woken.guest.memory.read(at, 6), woken.guest.memory.read(200, 12)) == (b"far up", b"initial data")
    woken.close()


def test_the_clock_goes_on_after_another_boot_and_does_not_stand_while_it_sleeps(
    modules: Modules, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.monotonic_ns
    guest = tape.boot(tape.module(modules))
    before = tape.clock(guest)
    guest.suspend(snapshots, identity(guest.module))
    found = snapshots.find(identity(guest.module))
    assert found is not None
    booted = real()
    monkeypatch.setattr(time, "monotonic_ns", lambda: real() - booted)  # the kernel's clock begins anew
    monkeypatch.setattr(snapshots, "boot", b"another boot ...")
    woken = Instance.wake(guest.module, tape.LIMITS, wat.RecordingHost(), found)
    after = tape.clock(woken)
    assert after > before
    woken.suspend(snapshots, identity(guest.module))
    monkeypatch.setattr(time, "monotonic_ns", lambda: real() - booted + 3600 * 10**9)  # an hour later
    found = snapshots.find(identity(guest.module))
    assert found is not None
    woken = Instance.wake(guest.module, tape.LIMITS, wat.RecordingHost(), found)
    assert tape.clock(woken) - after >= 3600 * 10**9
    woken.close()


def test_a_lowered_limit_is_reported_and_the_snapshot_stays(modules: Modules, snapshots: Snapshots) -> None:
    module = tape.module(modules)
    guest = tape.boot(module)
    tape.do(guest, (tape.GROW, 20, 0))
    guest.suspend(snapshots, identity(module))
    found = snapshots.find(identity(module))
    assert found is not None
    with pytest.raises(GuestFault, match=r"\b1507328\b") as fault:
        Instance.wake(module, Limits(memory_bytes=1 << 20), wat.RecordingHost(), found)
    assert fault.value.kind is FaultKind.MEMORY_EXCEEDED
    Instance.wake(module, tape.LIMITS, wat.RecordingHost(), found).close()


def test_one_instance_of_a_controller_is_awake_at_a_time(modules: Modules, snapshots: Snapshots) -> None:
    guest = slept(tape.boot(tape.module(modules)), snapshots)
    found = snapshots.find(identity(guest.module))
    assert found is not None
    with pytest.raises(RuntimeError, match="awake"):
        Instance.wake(guest.module, tape.LIMITS, wat.RecordingHost(), found)
    guest.close()
    Instance.wake(guest.module, tape.LIMITS, wat.RecordingHost(), found).close()


@pytest.mark.parametrize("when", ["is gone", "is another", "was cut"])
def test_a_snapshot_whose_file_has_changed_since_it_was_found_is_lost(
    when: str, modules: Modules, snapshots: Snapshots
) -> None:
    guest = tape.boot(tape.module(modules))
    who = identity(guest.module)
    guest.suspend(snapshots, who)
    found = snapshots.find(who)
    assert found is not None
    path = snapshots.path(who.controller_uid)
    if when == "is gone":
        snapshots.forget(who.controller_uid)
    elif when == "is another":
        snapshots.forget(who.controller_uid)
        tape.boot(guest.module).suspend(snapshots, who)
    else:
        os.truncate(path, snapshot_file.MEMORY_AT + 4096)
    with pytest.raises(SnapshotLost):
        Instance.wake(guest.module, tape.LIMITS, wat.RecordingHost(), found)


def test_a_forgotten_snapshot_does_not_hurt_its_awake_instance(modules: Modules, snapshots: Snapshots) -> None:
    awake, sleeper = tape.boot(tape.module(modules)), tape.boot(tape.module(modules))
    for guest in (awake, sleeper):
        tape.do(guest, (tape.STORE, 30000, 3), (tape.GROW, 1, 0), (tape.STORE, 200000, 4))
    sleeper = slept(sleeper, snapshots)
    snapshots.forget("a-controller")
    sleeper = slept(sleeper, snapshots)
    assert tape.state(sleeper) == tape.state(awake)


def test_an_instance_never_writes_into_the_file_of_another(modules: Modules, snapshots: Snapshots) -> None:
    """Both files are the first generation of the same controller: that alone does not make them one."""
    first, other = tape.boot(tape.module(modules)), tape.boot(tape.module(modules))
    tape.do(first, (tape.STORE, 30000, 3))
    first = slept(first, snapshots)
    snapshots.forget("a-controller")
    tape.do(other, (tape.STORE, 30000, 9), (tape.STORE, 50000, 9))
    other.suspend(snapshots, identity(other.module))
    tape.do(first, (tape.STORE, 400, 4))
    expected = tape.state(first)
    assert tape.state(slept(first, snapshots)) == expected


@pytest.mark.parametrize("failing", ["pwrite", "ftruncate"])
def test_a_full_disk_leaves_the_instance_awake_and_nothing_on_disk(
    failing: str, modules: Modules, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    awake, sleeper = tape.boot(tape.module(modules)), slept(tape.boot(tape.module(modules)), snapshots)
    for guest in (awake, sleeper):
        tape.do(guest, (tape.STORE, 30000, 3))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(SnapshotFailed, match="No space left on device"):
            sleeper.suspend(snapshots, identity(sleeper.module))
    assert snapshots.find(identity(sleeper.module)) is None
    assert snapshots.uids() == set()
    sleeper = slept(sleeper, snapshots)
    assert tape.state(sleeper) == tape.state(awake)


def test_a_full_tmpfs_does_not_end_a_reader_of_unwritten_pages(tmp_path: Path) -> None:
    separate = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    (tmp_path / "disk").mkdir()
    probe = [*separate, "mount", "-t", "tmpfs", "none", str(tmp_path / "disk")]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    command = [*separate, sys.executable, "-m", "support.guests.full_tmpfs", str(tmp_path / "disk")]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_sixty_four_controllers_sleep_and_wake_at_once(modules: Modules, snapshots: Snapshots) -> None:
    module = tape.module(modules)
    gate = threading.Barrier(64)

    def live(number: int) -> bool:
        guest = tape.boot(module)
        gate.wait()
        for step in range(10):
            tape.do(guest, (tape.STORE, 300 + 4 * step, number), (tape.SET_I32, number, 0))
            guest = slept(guest, snapshots, f"controller-{number}")
        found = tape.state(guest)
        guest.close()
        return found[300:340] == number.to_bytes(4, "little") * 10 and found[64:68] == number.to_bytes(4, "little")

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(live, range(64)))
