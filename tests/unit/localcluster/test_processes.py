"""Processes that outlive the one that starts them take nothing of it along."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil

from trellis_dev.localcluster.guard import guard
from trellis_dev.localcluster.processes import ProcessRecord, alive, children, end, spawn, wait_ended
from trellis_dev.localcluster.supervisor import marked, sweep


def open_files(record: ProcessRecord) -> set[str]:
    return {os.path.realpath(path) for path in Path(f"/proc/{record.pid}/fd").iterdir()}


def test_a_file_left_open_by_the_forkserver_is_closed_in_started_processes(tmp_path: Path) -> None:
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


def test_a_child_process_without_the_environment_mark_ends_with_its_component(tmp_path: Path) -> None:
    token = "unmarked-children"
    outside = subprocess.Popen(["/bin/sleep", "60"])
    script = "/usr/bin/env -i /bin/sleep 60 & wait"
    leader = spawn(["/bin/sh", "-c", script], log=tmp_path / "log", token=token)
    try:
        deadline = time.monotonic() + 30
        while not (started := children(leader)) or psutil.Process(started[0].pid).environ():
            assert time.monotonic() < deadline, "the child did not start with an empty environment"
            time.sleep(0.02)
        assert set(marked(token)) == {leader.pid, started[0].pid}
        sweep(token)
        assert wait_ended([leader, *started], 30) == []
        assert marked(token) == []
        assert outside.poll() is None
        assert not alive(leader)
    finally:
        end([leader], grace=0)
        outside.kill()
        outside.wait()
