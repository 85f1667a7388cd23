"""A disk that takes nothing, at whichever write, and a host that is killed then: every loss is reported."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller_host.guest.faults import FaultKind
from controller_host.scheduler.deliveries import Served
from controller_host.state.disk_space import DISK_FAILED, DISK_FULL, DiskSpace
from controller_host.state.progress import LastCall, NotWritten, Progress, SeenVersions
from controller_host.timings import DiskTimings, Timings, TurnTimings
from support.guests import wat
from support.guests.lifetimes import COUNTING, LOOP, LOOPING, UID, Disk, Host, calls_of, delivery, text

WRITES = 12
"""More than suspending a guest takes here: pages, checksums, note, header, length, marks."""
FIRST = wat.text(COUNTING)
SECOND = wat.text(COUNTING[:-1] + "(func))")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with Disk().patched(monkeypatch) as item:
        yield item


@pytest.fixture
def host(disk: Disk, tmp_path: Path) -> Iterator[Host]:
    """A host whose guests are called for all that there is, however slow the machine is."""
    assert disk.left is None
    item = Host(tmp_path / "data", Timings(turns=TurnTimings(slice=60.0)))
    yield item
    disk.left = None
    item.close()


@pytest.mark.parametrize("left", range(WRITES))
@pytest.mark.parametrize("slept", [False, True], ids=["never on disk", "on disk before"])
def test_a_guest_that_the_disk_does_not_take_goes_on_with_what_it_had(
    host: Host, disk: Disk, left: int, slept: bool
) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    if slept:
        assert host.lifecycle.suspend()
    host.call("a", "b", version=2)
    disk.left = left
    put = host.lifecycle.suspend()
    assert put or host.lifecycle.instance is not None
    refused, disk.left = disk.refused, None
    assert host.parts.disk_space.refuses == bool(refused)
    assert put or refused
    host.call("c")
    assert calls_of(host.lifecycle) == 4
    assert host.lifecycle.counters.cold_starts == 1
    assert host.lifecycle.suspend()
    assert (host.done("a"), host.done("b"), host.parts.disk_space.refuses) == (True, True, False)
    host.kill()
    host.lifecycle.adopt(host.prepared(FIRST))
    assert host.done("c")
    host.call("d")
    assert calls_of(host.lifecycle) == 5


@pytest.mark.parametrize("left", range(WRITES))
@pytest.mark.parametrize("slept", [False, True], ids=["never on disk", "on disk before"])
def test_after_a_kill_exactly_the_versions_that_the_guest_remembers_count_as_processed(
    host: Host, disk: Disk, left: int, slept: bool
) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    if slept:
        assert host.lifecycle.suspend()
    host.call("b")
    disk.left = left
    host.lifecycle.suspend()
    host.kill()
    disk.left = None
    host.lifecycle.adopt(host.prepared(FIRST))
    done = [name for name in ("a", "b") if host.done(name)]
    remembered = 2 if host.lifecycle.snapshot else 0
    assert host.lifecycle.processed.get(text("a")) is not None
    assert host.lifecycle.processed.get(text("b")) is not None
    assert len(done) <= remembered
    host.call("c")
    assert calls_of(host.lifecycle) == remembered + 1


def test_versions_that_a_full_disk_did_not_forget_do_not_count_after_the_next_snapshot(host: Host, disk: Disk) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a", "b")
    host.lifecycle.suspend()
    host.call("a", version=2)
    disk.left = 0
    host.lifecycle.discard()
    assert (host.done("a"), host.done("b"), host.lifecycle.snapshot) == (False, False, False)
    disk.left = None
    host.lifecycle.adopt(host.prepared(FIRST, "another"))
    host.call("a", version=2)
    assert host.lifecycle.suspend()
    host.kill()
    host.lifecycle.adopt(host.prepared(FIRST, "another"))
    assert (host.done("a"), host.done("b")) == (True, False)


def test_owed_versions_are_written_while_the_guest_sleeps_and_never_after_it_woke(host: Host, disk: Disk) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    host.lifecycle.suspend()
    disk.spared = True
    for wakes in (False, True):
        host.call("a", version=2)
        disk.left = 0
        assert host.lifecycle.suspend()
        assert host.lifecycle.processed.owed
        disk.left = None
        if wakes:
            host.call("b")
        host.lifecycle.settle()
        assert not host.lifecycle.processed.owed
        host.kill()
        host.lifecycle.adopt(host.prepared(FIRST))
        assert host.done("a") is not wakes
        assert not host.done("b")


def test_objects_that_are_new_wait_for_the_disk_and_others_do_not(host: Host, disk: Disk) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("known")
    disk.left = 0
    served = host.call("known", "new", "-known", version=2)
    assert [turn.key.name for turn, _ in served.done] == ["known", "known"]
    assert [turn.key.name for turn in served.later] == ["new"]
    assert "full" in served.unwritten
    assert host.parts.disk_space.reason == DISK_FULL
    disk.left = None
    assert [turn.key.name for turn, _ in host.call("new").done] == ["new"]


def test_the_saved_state_of_a_former_version_is_kept_until_the_new_state_is_on_disk(host: Host) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a", "b", "c")
    host.lifecycle.suspend()
    for _ in range(2):
        host.lifecycle.adopt(host.prepared(SECOND))
        assert host.lifecycle.serve([]).cold
        assert calls_of(host.lifecycle) == 3
        host.kill()
    host.lifecycle.adopt(host.prepared(SECOND))
    host.call("a")
    assert host.lifecycle.suspend()
    assert host.progress.saved(UID) is None
    host.kill()
    host.lifecycle.adopt(host.prepared(SECOND))
    host.call("a")
    assert calls_of(host.lifecycle) == 5


def test_a_new_version_waits_for_the_disk_that_is_to_keep_what_the_former_saved(host: Host, disk: Disk) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a", "b")
    second = host.prepared(SECOND)
    disk.left = 0
    with pytest.raises(NotWritten):
        host.lifecycle.adopt(second)
    assert calls_of(host.lifecycle) == 2, "the former one is as it was"
    disk.left = None
    assert host.lifecycle.adopt(second)
    host.call("a")
    assert calls_of(host.lifecycle) == 3


def test_a_guest_that_does_not_stand_what_was_saved_begins_without_it(host: Host) -> None:
    trapping = COUNTING.replace(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) (i64.const 0)",
        "(if (global.get $calls) (then (unreachable))) (i64.const 0)",
    )
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    host.lifecycle.adopt(host.prepared(wat.text(trapping)))
    assert host.call("a").fault is not None
    assert host.progress.saved(UID) is None
    host.lifecycle.adopt(host.prepared(wat.text(trapping), "again"))
    assert host.call("a").fault is None


def test_a_version_without_state_saves_nothing(host: Host) -> None:
    empty = COUNTING.replace("(i32.store8 (i32.const 73)", "(drop").replace("0x0000_0040_0000_000b", "0")
    empty = empty.replace("(drop (i32.add (i32.const 48) (global.get $calls)))", "")
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    host.lifecycle.adopt(host.prepared(wat.text(empty)))
    host.call("a")
    assert host.progress.saved(UID) is not None
    host.lifecycle.adopt(host.prepared(SECOND))
    assert host.progress.saved(UID) is None, "that of the version before it is old"
    host.call("a")
    assert calls_of(host.lifecycle) == 1


PATIENT = {"cpu_seconds": 60.0, "wall_seconds": 60.0}


def ended(work: Callable[[], object], host: Host, running_seconds: float) -> None:
    """Interrupt a guest once a call of it, or its start, has taken so long; wait for its thread."""
    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 10
    while (started := host.lifecycle._running) is None or started.guest.budget.wall_seconds() < running_seconds:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    host.lifecycle.interrupt()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("running_seconds", [0.0, 0.1], ids=["as it begins", "in the loop"])
@pytest.mark.parametrize("where", LOOPING)
def test_a_guest_that_loops_is_ended_wherever_it_does(host: Host, where: str, running_seconds: float) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a", "b")
    host.lifecycle.suspend()
    host.lifecycle.adopt(host.prepared(wat.text(LOOPING[where]), **PATIENT))
    served: list[Served] = []
    host.lifecycle._running = None
    ended(lambda: served.append(host.lifecycle.serve([delivery("a")])), host, running_seconds)
    assert served[0].done == []
    assert served[0].fault is None or served[0].fault.kind is FaultKind.INTERRUPTED
    host.kill()
    host.lifecycle.adopt(host.prepared(SECOND, **PATIENT))
    host.call("a")
    assert calls_of(host.lifecycle) == 3, "what the former one saved is there still"


def test_a_former_version_that_loops_while_it_saves_is_asked_again_by_the_next_host(host: Host) -> None:
    loops = COUNTING.replace('"save") (result i64)', f'"save") (result i64) (if (global.get $calls) (then {LOOP}))')
    host.lifecycle.adopt(host.prepared(wat.text(loops), **PATIENT))
    host.call("a")
    host.lifecycle.suspend()
    second = host.prepared(SECOND, **PATIENT)
    ended(lambda: host.lifecycle.adopt(second), host, 0.1)
    host.kill()
    past = host.progress.load(UID)
    assert past is not None
    assert past.sha256 == host.prepared(wat.text(loops)).sha256


def test_a_guest_interrupted_between_two_calls_is_suspended_without_further_calls(host: Host) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    host.lifecycle.interrupt()
    served = host.call("b", "c")
    assert ([turn.key.name for turn in served.rest], served.done, served.fault) == (["b", "c"], [], None)
    assert host.lifecycle.suspend()
    host.kill()
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("b")
    assert calls_of(host.lifecycle) == 2


def test_a_call_that_the_host_ends_leaves_what_is_on_disk(host: Host) -> None:
    loops = COUNTING.replace(
        '"reconcile") (param i32 i32) (result i64)',
        f""""reconcile") (param i32 i32) (result i64)
      (if (i32.ge_u (global.get $calls) (i32.const 2)) (then {LOOP}))""",
    )
    host.lifecycle.adopt(host.prepared(wat.text(loops), **PATIENT))
    host.call("a")
    host.lifecycle.suspend()
    ended(lambda: host.call("b", "c"), host, 0.1)
    assert host.lifecycle.snapshot
    host.kill()
    host.lifecycle.adopt(host.prepared(wat.text(loops), **PATIENT))
    assert (host.done("a"), host.done("b"), host.done("c")) == (True, False, False)
    host.call("b")
    assert calls_of(host.lifecycle) == 2


def test_the_size_on_disk_is_known_after_a_restart(host: Host) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    host.lifecycle.suspend()
    size = host.lifecycle.counters.snapshot_bytes
    host.kill()
    host.lifecycle.adopt(host.prepared(FIRST))
    assert host.lifecycle.counters.snapshot_bytes == size > 0


def test_a_full_sqlite_is_reported_and_continues_when_there_is_space(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.commit("u", SeenVersions("sha", "c", "t", {"a": LastCall("1")}))
    (pages,) = progress._base.execute("PRAGMA page_count").fetchone()
    progress._base.execute(f"PRAGMA max_page_count={pages}")
    for _ in range(2):
        with pytest.raises(NotWritten, match="full") as refused:
            progress.meet("u", [f"v1 ConfigMap team-a {number:0100}" for number in range(500)])
        assert refused.value.full
    progress.commit("u", SeenVersions("sha", "c", "t2", {"a": LastCall("2")}))
    assert progress.load("u") == SeenVersions("sha", "c", "t2", {"a": LastCall("2")})
    progress.close()


def test_a_disk_that_takes_nothing_as_the_host_starts_is_no_reason_to_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress(tmp_path)
    progress.commit("u", SeenVersions("sha", "c", "t", {"a": LastCall("1")}))
    progress.close()

    def full(_: Progress) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "_connect", full)
        with pytest.raises(OSError, match="database or disk is full"):
            Progress(tmp_path)
    later = Progress(tmp_path)
    assert later.load("u") == SeenVersions("sha", "c", "t", {"a": LastCall("1")})
    later.close()


def test_a_start_writes_nothing_that_a_full_disk_would_have_to_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path / "data")
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("a")
    host.lifecycle.suspend()
    with Disk(left=0).patched(monkeypatch) as disk:
        host.kill()
        host.lifecycle.adopt(host.prepared(FIRST))
        assert (host.done("a"), disk.refused) == (True, 0)
    host.close()


def test_the_disk_is_tried_again_later_and_later_and_at_once_when_it_takes_something() -> None:
    now = [0.0]
    room = DiskSpace(lambda: now[0])
    full = NotWritten(_full())
    waits = []
    for _ in range(8):
        room.refused(full)
        room.refused(OSError(5, "Input/output error"))  # together with the first
        waits.append(room.wait())
        now[0] += room.wait()
    assert waits[:3] == [1.0, 2.0, 4.0]
    assert waits[-1] == DiskTimings().most
    assert (room.reason, room.refuses) == (DISK_FAILED, True)
    room.refused(full)
    assert room.reason == DISK_FULL
    room.took()
    assert (room.wait(), room.reason, room.refuses) == (0.0, "", False)
    room.refused(full)
    assert room.wait() == DiskTimings().first


def _full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


async def test_a_disk_full_for_less_than_an_interval_is_reported_as_writable_again() -> None:
    room, recovered = DiskSpace(timings=DiskTimings(first=0.05, look=0.05)), asyncio.Event()
    task = asyncio.create_task(room.run(lambda: None, recovered.set))
    await asyncio.sleep(0)  # it takes everything as it is looked at
    room.refused(NotWritten(_full()))
    async with asyncio.timeout(5):
        await recovered.wait()
    assert not room.refuses
    task.cancel()
