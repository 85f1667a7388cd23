"""The processed versions of controllers, over restarts."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controller_host.state.progress import (
    NEVER,
    Damaged,
    KnownModule,
    LastCall,
    NotWritten,
    Progress,
    Saved,
    SeenVersions,
)


@pytest.fixture
def progress(tmp_path: Path) -> Iterator[Progress]:
    item = Progress(tmp_path)
    yield item
    item.close()


def again(progress: Progress, directory: Path) -> Progress:
    progress.close()
    return Progress(directory)


def test_processed_versions_are_known_after_a_restart(progress: Progress, tmp_path: Path) -> None:
    past = SeenVersions(
        "sha", "config", "t", {"v1 ConfigMap a x": LastCall("u1/7"), "v1 ConfigMap a y": LastCall("", 1234.5)}
    )
    progress.commit("u", past)
    later = again(progress, tmp_path)
    assert later.load("u") == past
    assert later.load("other") is None
    later.close()


def test_a_version_replaces_a_former_one_and_deleted_ones_are_forgotten(progress: Progress) -> None:
    progress.commit("u", SeenVersions("sha", "c", "t", {"a": LastCall("1"), "b": LastCall("1"), "c": LastCall("1")}))
    progress.commit("u", SeenVersions("sha", "c", "t", {"a": LastCall("2"), "b": LastCall("")}))
    found = progress.load("u")
    assert found is not None
    assert found.processed == {"a": LastCall("2"), "c": LastCall("1")}


def test_a_lost_snapshot_leaves_keys_without_processed_versions(progress: Progress) -> None:
    progress.meet("u", ["a", "b"])
    assert progress.load("u") == SeenVersions("", "", "", {"a": LastCall(NEVER), "b": LastCall(NEVER)})
    progress.commit("u", SeenVersions("sha", "c", "t", {"a": LastCall("1", 5.0), "b": LastCall("")}))
    progress.lose("u")
    assert progress.load("u") == SeenVersions("", "", "", {"a": LastCall(NEVER)})


def test_saved_data_survives_a_lost_snapshot_and_is_deleted_with_the_controller(progress: Progress) -> None:
    progress.commit("u", SeenVersions("sha", "c", "t", {"a": LastCall("1")}))
    progress.save("u", Saved("sha", b"{}"))
    progress.lose("u")
    assert progress.saved("u") == Saved("sha", b"{}")
    progress.forget("u")
    assert progress.saved("u") is None
    assert progress.load("u") is None


def test_a_sweep_forgets_controllers_that_are_no_more(progress: Progress) -> None:
    for uid in ("u1", "u2"):
        progress.commit(uid, SeenVersions("sha", "c", "t", {"a": LastCall("1")}))
    progress.save("u3", Saved("sha", b"{}"))
    assert progress.sweep({"u1"}) == 2
    assert progress.load("u1") is not None
    assert progress.load("u2") is None
    assert progress.saved("u3") is None


def test_a_source_that_cannot_change_is_known(progress: Progress) -> None:
    progress.learn("a", KnownModule("sha", 1, 7))
    progress.learn("b", KnownModule("sha", 1, 7))
    progress.keep_modules({"a"})
    assert progress.known("a") == KnownModule("sha", 1, 7)
    assert progress.known("b") is None


@pytest.mark.parametrize("garbage", [b"", b"no database at all" * 500, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_recreated(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "progress.sqlite").write_bytes(garbage)
    progress = Progress(tmp_path)
    progress.commit("u", SeenVersions("sha", "c", "t", {}))
    assert progress.load("u") == SeenVersions("sha", "c", "t", {})
    progress.close()


@pytest.mark.usefixtures("progress")
def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    assert (tmp_path / "progress.sqlite").stat().st_mode & 0o077 == 0


def test_many_threads_at_once(progress: Progress) -> None:
    def work(number: int) -> bool:
        past = SeenVersions("sha", "c", "t", {str(number): LastCall("1")})
        progress.commit(f"u{number}", past)
        return progress.load(f"u{number}") == past

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(200)))


_KILLED = """
import sys
from pathlib import Path
from controller_host.state.progress import LastCall, SeenVersions, Progress
progress = Progress(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    last = LastCall(str(number))
    progress.commit("u", SeenVersions("sha", "c", str(number), {"a": last, "b": last}))
    print(number, flush=True)
"""


def test_a_kill_in_the_middle_leaves_one_moment_or_none(tmp_path: Path) -> None:
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= 20:
                    os.kill(process.pid, signal.SIGKILL)
                    break
        progress = Progress(tmp_path)
        past = progress.load("u")
        assert past is not None
        assert past.processed["a"] == past.processed["b"]
        assert past.token == past.processed["a"].version
        progress.close()


def test_a_verified_permission_is_known_while_it_has_a_user(progress: Progress, tmp_path: Path) -> None:
    assert not progress.has_shown("a", "claim")
    progress.show("a", "claim")
    assert progress.has_shown("a", "claim")
    assert not progress.has_shown("a", "another")
    assert progress.has_shown("b", "claim"), "who asks as the same user for the same"
    progress.forget("a")
    later = again(progress, tmp_path)
    assert later.has_shown("b", "claim")
    later.sweep([])
    assert not later.has_shown("b", "claim")
    later.close()


def test_a_disk_that_takes_nothing_costs_asking_again_and_no_more(progress: Progress) -> None:
    progress.learn("source", KnownModule("sha", None, 1))
    progress.show("a", "claim")
    progress._base.execute("PRAGMA query_only = ON")
    progress.learn("another", KnownModule("sha", 1, 1))
    progress.learn_version("sha", 1)
    progress.show("b", "another")
    assert progress.has_shown("b", "claim"), "what is known is known, although it cannot be noted for b"
    assert progress.known("another") is None
    assert not progress.has_shown("b", "another")
    assert progress.known("source") == KnownModule("sha", None, 1)


def damage(progress: Progress, directory: Path) -> None:
    """Overwrite the file under a host that has it open."""
    processed = {f"key-{number}": LastCall(f"u/{number}") for number in range(5000)}
    progress.commit("u", SeenVersions("sha", "config", "t", processed))
    progress._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (directory / "progress.sqlite").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    progress._base.execute("PRAGMA shrink_memory")


def test_a_file_damaged_at_run_time_is_recreated(progress: Progress, tmp_path: Path) -> None:
    damage(progress, tmp_path)
    with pytest.raises(NotWritten, match="malformed"):
        progress.meet("other", [f"new-{number}" for number in range(3000)])
    progress.meet("other", ["new"])
    later = again(progress, tmp_path)
    assert later.load("other") == SeenVersions("", "", "", {"new": LastCall(NEVER)})
    assert later.load("u") is None
    later.close()


def test_a_damaged_file_is_tried_to_be_replaced_until_it_can_be(
    progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(progress, tmp_path)

    def refused(_: Progress) -> None:
        raise OSError("Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "_connect", refused)
        with pytest.raises(Damaged, match="malformed"):
            progress.load("u")
        with pytest.raises(NotWritten, match="Read-only file system"):
            progress.meet("other", ["new"])
    progress.meet("other", ["new"])
    assert progress.load("other") == SeenVersions("", "", "", {"new": LastCall(NEVER)})


def test_use_after_close_damages_nothing(progress: Progress, tmp_path: Path) -> None:
    progress.meet("u", ["a"])
    later = again(progress, tmp_path)
    with pytest.raises(sqlite3.ProgrammingError):
        progress.meet("u", ["b"])
    assert later.load("u") == SeenVersions("", "", "", {"a": LastCall(NEVER)})
    later.close()
