"""A snapshot is found by what it belongs to, whole; anything else is a cold start and never an error."""

from __future__ import annotations

import os
import random
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller_host.guest import snapshot_file
from controller_host.guest.instance import Instance
from controller_host.guest.modules import Module, Modules
from controller_host.guest.pages import PAGE
from controller_host.guest.snapshots import Identity, Snapshots
from support.guests import killed_suspender, tape, wat

STORED_AT = 40 * 1024
"""Where the guest of these tests has its number, in its memory."""

PARTS = {
    "its magic number": 3,
    "its format": 8,
    "its state": 12,
    "its generation": 17,
    "its boot": 30,
    "its identity": 60,
    "its size of pages": 88,
    "its memory's size": 98,
    "a global": 190,
    "the checksum of its header": 204,
    "a page's checksum": snapshot_file.CHECKSUMS_AT + STORED_AT // PAGE * 8 + 2,
    "a hole among the checksums": snapshot_file.CHECKSUMS_AT + 20 * 8,
    "its note": snapshot_file.NOTE_AT + 1,
    "a page of its memory": snapshot_file.MEMORY_AT + STORED_AT + 1,
    "a hole in its memory": snapshot_file.MEMORY_AT + 20 * 4096 + 5,
}
"""A byte of each part of the file."""


@pytest.fixture
def snapshots(tmp_path: Path) -> Iterator[Snapshots]:
    opened = Snapshots(tmp_path / "snapshots")
    yield opened
    opened.close()


@pytest.fixture
def module(modules: Modules) -> Module:
    return tape.module(modules)


def identity(module: Module, uid: str = "a-controller") -> Identity:
    return Identity(uid, module.sha256, module.engine.key, "configured")


def suspended(module: Module, snapshots: Snapshots, number: int = 7, uid: str = "a-controller") -> Path:
    """Put a guest to disk that has ``number`` in its memory and in a global."""
    guest = tape.boot(module)
    tape.do(guest, (tape.STORE, STORED_AT, number), (tape.SET_I32, number, 0))
    guest.suspend(snapshots, identity(module, uid), b"a note")
    return snapshots.path(uid)


def after_another_boot(snapshots: Snapshots) -> None:
    snapshots.boot = b"another boot ..."  # type: ignore[misc]


def changed(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def test_a_snapshot_is_found_with_its_hosts_note(module: Module, snapshots: Snapshots) -> None:
    path = suspended(module, snapshots)
    found = snapshots.find(identity(module))
    assert found is not None
    assert found.note == b"a note"
    assert snapshots.find(identity(module, "another")) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("field", ["controller_uid", "module_sha256", "engine", "config_digest"])
def test_a_snapshot_of_another_is_not_found_by_its(field: str, module: Module, snapshots: Snapshots) -> None:
    path = suspended(module, snapshots)
    other = replace(identity(module), **{field: "another"})
    if field == "controller_uid":
        path.rename(snapshots.path("another"))
    assert snapshots.find(other) is None


@pytest.mark.parametrize("part", PARTS)
def test_after_another_boot_one_changed_bit_makes_it_none_in(part: str, module: Module, snapshots: Snapshots) -> None:
    path = suspended(module, snapshots)
    after_another_boot(snapshots)
    assert snapshots.find(identity(module)) is not None
    snapshots._intact.clear()
    changed(path, PARTS[part])
    assert snapshots.find(identity(module)) is None
    assert not path.exists()


@pytest.mark.parametrize("part", PARTS)
def test_a_file_cut_short_is_none_even_of_the_same_boot_in(part: str, module: Module, snapshots: Snapshots) -> None:
    path = suspended(module, snapshots)
    os.truncate(path, PARTS[part])
    assert snapshots.find(identity(module)) is None


OTHER_FILES = {
    "empty": b"",
    "of one byte": b"\0",
    "a magic number alone": b"TRLSNAP\0",
    "zeros": bytes(32 << 20),
    "noise": random.Random(7).randbytes(1 << 20),
}


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_a_file_is_none_that_is(kind: str, module: Module, snapshots: Snapshots) -> None:
    snapshots.path("a-controller").write_bytes(OTHER_FILES[kind])
    assert snapshots.find(identity(module)) is None


def test_pages_of_two_generations_never_pass_as_one(module: Module, snapshots: Snapshots) -> None:
    """After a power cut any mixture of old and new blocks may be there: each alone is whole, with its checksum."""
    path = suspended(module, snapshots, 7)
    old = path.read_bytes()
    found = snapshots.find(identity(module))
    assert found is not None
    guest = Instance.wake(module, tape.LIMITS, wat.RecordingHost(), found)
    tape.do(guest, (tape.STORE, STORED_AT, 8), (tape.STORE, 300, 8))
    guest.suspend(snapshots, identity(module), b"a note")
    page = STORED_AT // PAGE
    with path.open("r+b") as file:
        for at, length in (
            (snapshot_file.MEMORY_AT + page * PAGE, PAGE),
            (snapshot_file.CHECKSUMS_AT + page * 8, 8),
        ):
            file.seek(at)
            file.write(old[at : at + length])
    after_another_boot(snapshots)
    assert snapshots.find(identity(module)) is None


def test_a_snapshot_is_trusted_only_if_its_writer_ended_cleanly(module: Module, tmp_path: Path) -> None:
    def found_changed(*, cleanly: bool) -> bool:
        directory = tmp_path / f"cleanly-{cleanly}"
        first = Snapshots(directory)
        path = suspended(module, first)
        if cleanly:
            first.close()
        else:
            os.close(first._locked)
        changed(path, PARTS["a page of its memory"])
        second = Snapshots(directory)
        found = second.find(identity(module)) is not None
        second.close()
        return found

    assert found_changed(cleanly=True)
    assert not found_changed(cleanly=False)


def test_the_mark_of_a_clean_end_counts_once_and_over_several_clean_runs(module: Module, tmp_path: Path) -> None:
    first = Snapshots(tmp_path / "s")
    suspended(module, first)
    first.close()
    second = Snapshots(tmp_path / "s")
    assert second.run == first.run
    second.close()
    third = Snapshots(tmp_path / "s")
    os.close(third._locked)
    assert Snapshots(tmp_path / "s").run != first.run


def test_one_process_at_a_time_has_the_directory(tmp_path: Path) -> None:
    first = Snapshots(tmp_path / "s")
    with pytest.raises(BlockingIOError):
        Snapshots(tmp_path / "s")
    first.close()
    Snapshots(tmp_path / "s").close()


def test_sweeping_keeps_the_controllers_that_are_there(module: Module, snapshots: Snapshots) -> None:
    for uid in ("one", "two", "three"):
        suspended(module, snapshots, uid=uid)
    assert snapshots.uids() == {"one", "two", "three"}
    assert snapshots.sweep(["two", "four"]) == {"one", "three"}
    assert snapshots.uids() == {"two"}
    snapshots.forget("two")
    snapshots.forget("two")
    assert snapshots.find(identity(module, "two")) is None


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "a\0b", "x" * 64])
def test_an_invalid_uid_names_no_file(uid: str, snapshots: Snapshots) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(uid))):
        snapshots.forget(uid)


def killed(tmp_path: Path, write: int, length: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, killed_suspender.__file__, str(tmp_path), str(write), str(length)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)


def survived(tmp_path: Path) -> set[int] | None:
    """Return the numbers of the guest that is found after the kill, or None if there is none."""
    modules, snapshots = Modules(tmp_path / "modules"), Snapshots(tmp_path / "snapshots")
    module = tape.module(modules)
    found = snapshots.find(killed_suspender.who(module.sha256, modules.engine.key))
    try:
        if found is None:
            return None
        guest = Instance.wake(module, tape.LIMITS, wat.RecordingHost(), found)
        numbers = killed_suspender.numbers(guest)
        guest.close()
        return numbers
    finally:
        snapshots.close()


@pytest.mark.parametrize(
    ("write", "length"),
    [(0, 0), (0, 4), (1, 100), (3, 4096), (12, 0), (-2, 0), (-2, 8), (-1, 0), (-1, 50), (-1, 10**6)],
)
def test_a_kill_in_the_middle_of_writing_leaves_the_whole_former_state_or_none(
    write: int, length: int, tmp_path: Path
) -> None:
    """Below 0: from the last write, which is the header's; before it come the checksums."""
    writes = 1 + _page_writes() + 2
    child = killed(tmp_path, write if write >= 0 else writes + write, length)
    printed, _ = child.communicate(timeout=60)
    assert (printed, child.returncode) == ("1\n", -signal.SIGKILL)
    numbers = survived(tmp_path)
    # The first write marks the file: before it the former state is whole. Once the header is there, the new one is.
    assert numbers == ({1} if (write, length) == (0, 0) else {2} if (write, length) == (-1, 10**6) else None)


def _page_writes() -> int:
    """Return how often the second suspending writes pages: once for each run of pages of its marks and the request."""
    changed_pages = {mark // PAGE for mark in killed_suspender.MARKS} | {
        tape.REQUEST_AT // PAGE,
        tape.GLOBALS_AT // PAGE,
    }
    return sum(1 for page in changed_pages if page - 1 not in changed_pages)


def test_a_kill_at_any_moment_never_leaves_a_torn_state(tmp_path: Path) -> None:
    for attempt in range(4):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        child = killed(directory, -1, 0)
        assert child.stdout is not None
        for _ in range(5 + 11 * attempt):
            assert child.stdout.readline()
        child.kill()
        child.wait(60)
        child.stdout.close()
        numbers = survived(directory)
        assert numbers is None or len(numbers) == 1


def test_a_header_of_more_globals_than_a_page_has_room_for_is_read_whole(tmp_path: Path) -> None:
    values = tuple(range(1000))
    header = snapshot_file.Header(1, b"b" * 16, b"r" * 16, b"i" * 32, PAGE, 2, 3, values, b"p" * 16, 0, b"n" * 16)
    path = tmp_path / "many"
    path.write_bytes(header.pack())
    os.truncate(path, snapshot_file.MEMORY_AT + PAGE)
    descriptor = os.open(path, os.O_RDWR)
    try:
        assert snapshot_file.read_header(descriptor) == header
        os.pwrite(descriptor, b"x", PAGE + 1000)
        assert snapshot_file.read_header(descriptor) is None
    finally:
        os.close(descriptor)
