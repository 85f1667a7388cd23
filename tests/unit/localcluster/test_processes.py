"""Processes that outlive the one that starts them take nothing of it along."""

from __future__ import annotations

import os
from pathlib import Path

from trellis.localcluster.guard import guard
from trellis.localcluster.processes import ProcessRecord, end, spawn


def open_files(record: ProcessRecord) -> set[str]:
    return {os.path.realpath(path) for path in Path(f"/proc/{record.pid}/fd").iterdir()}


def test_a_file_that_our_starter_left_open_is_closed_in_what_we_start(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(descriptor, True)
    started = []
    try:
        started.append(spawn(["/bin/sleep", "60"], log=tmp_path / "log", token="none"))
        watcher = guard(tmp_path / "directory", "none")
        started.append(watcher.process)
        assert all(str(lock) not in open_files(each) for each in started)
        assert str(tmp_path / "log") in open_files(started[0])
    finally:
        os.close(descriptor)
        end(started, grace=0)
    os.close(watcher.pipe)
