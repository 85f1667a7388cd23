"""Processes that outlive the process that starts them; it or a later process ends them.

In: command lines, log files. Out: records of pid and start time, which state files store. Called by `up`, `down`,
fault tests and test fixtures. Invariant: a process gets a signal only if its start time matches the record, so a
reused pid is never affected.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import psutil
from pydantic import BaseModel

from trellis_dev.localcluster.supervisor import CLUSTER_VARIABLE

_POLL: Final = 0.02
_KILL_SECONDS: Final = 10.0
_STANDARD_ERROR: Final = 2
_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR", "LANG")
# Go collects garbage when the heap has doubled: a fifth of the CPU time of an API server of a small cluster. Collect at
# five times the heap instead, within the memory of a laptop.
_GO: Final = {"GOGC": "400", "GOMEMLIMIT": "1536MiB"}
_RESET: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)


class ProcessRecord(BaseModel, frozen=True):
    """Identity of a process, distinct from any other process with the same pid."""

    pid: int
    stamp: str


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _look(pid: int) -> tuple[str, bool] | None:
    """Return the start stamp of a process and whether it is a zombie; None if there is no such process."""
    if not Path("/proc/self/stat").exists():
        try:
            process = psutil.Process(pid)
            return str(process.create_time()), process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # proc(5): the name in brackets can contain anything; state is the first field after it, the start time the 20th.
    fields = text.rpartition(")")[2].split()
    return f"{_boot_id()}/{fields[19]}", fields[0] in "ZX"


def record_of(pid: int) -> ProcessRecord:
    """Return the record of a process; for an ended one, a record that matches nothing.

    On Linux the stamp is the boot id and the start in clock ticks since that boot, which is independent of clock
    changes.
    """
    look = _look(pid)
    return ProcessRecord(pid=pid, stamp=look[0] if look else "")


def current() -> ProcessRecord:
    """Return the record of this process."""
    return record_of(os.getpid())


def alive(record: ProcessRecord) -> bool:
    """Return whether the process still runs; reap it if it is an ended child of this one."""
    look = _look(record.pid)
    if look is None or look[0] != record.stamp:
        return False
    try:
        # The leader is a zombie while its other threads still end: only waitpid reports the end of a child reliably.
        return os.waitpid(record.pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return not look[1]


def children(record: ProcessRecord, *, deep: bool = False) -> list[ProcessRecord]:
    """Return the running child processes; with ``deep`` also their descendants."""
    if not alive(record):
        return []
    try:
        found = psutil.Process(record.pid).children(recursive=deep)
    except psutil.NoSuchProcess:
        return []
    return [record_of(process.pid) for process in found]


def closing_inherited() -> list[tuple[int, int]]:
    """Return the file actions that close inherited files in a new process.

    Otherwise a lock of the calling shell (``flock file trellis dev up``) would be held as long as the cluster runs.
    """
    found = []
    for path in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # already closed: the descriptor for this directory
            if int(path.name) > _STANDARD_ERROR and os.get_inheritable(int(path.name)):
                found.append((os.POSIX_SPAWN_CLOSE, int(path.name)))
    return found


def spawn(argv: Sequence[str], *, log: Path, token: str) -> ProcessRecord:
    """Start a program in a new session with the token ``token``; its output is appended to ``log``.

    It gets only a few environment variables, because etcd and Jaeger read options from the environment. The new session
    isolates it from Ctrl-C in the terminal.

    Raises:
        OSError: the program cannot be executed.
    """
    environment = (
        {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _GO | {CLUSTER_VARIABLE: token}
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *closing_inherited(),
        ],
        setsid=True,
        setsigdef=_RESET,
    )
    return record_of(pid)


def send(record: ProcessRecord, number: signal.Signals) -> bool:
    """Send a signal if the process still matches the record; return whether it did."""
    if not alive(record):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, number)
        return True
    return False


def freeze(record: ProcessRecord) -> bool:
    """Stop a process (SIGSTOP), and wait until it is stopped; return whether it existed."""
    if not send(record, signal.SIGSTOP):
        return False
    deadline = time.monotonic() + _KILL_SECONDS
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(record.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
            time.sleep(_POLL)
    return True


def wait_ended(records: Iterable[ProcessRecord], seconds: float) -> list[ProcessRecord]:
    """Wait until the processes have ended; return those that still run after ``seconds``."""
    left = list(records)
    deadline = time.monotonic() + seconds
    while left := [record for record in left if alive(record)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return left


def end(records: Iterable[ProcessRecord], *, grace: float) -> None:
    """End processes: SIGTERM, ``grace`` seconds, then SIGKILL; without grace SIGKILL at once. Wait for the end.

    A stopped process (SIGSTOP) handles SIGTERM only after SIGCONT; SIGKILL ends it in any state.
    """
    left = list(records)
    if grace > 0:
        for record in left:
            send(record, signal.SIGTERM)
        left = wait_ended(left, grace)
    for record in left:
        send(record, signal.SIGKILL)
    wait_ended(left, _KILL_SECONDS)
