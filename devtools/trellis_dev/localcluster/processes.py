"""Processes that outlive the one that starts them, and are ended by it or by a later one.

In: command lines, log files. Out: records of pid and start time, which state files keep. Called by `up`, `down`,
fault tests and test fixtures. Invariant: a process is signalled only if its start time is the recorded one, so a
pid that the system gave to another program is never hit.
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

from trellis_dev.localcluster.supervisor import MARK

_POLL: Final = 0.02
_KILL_SECONDS: Final = 10.0
_STANDARD_ERROR: Final = 2
_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR", "LANG")
# Go collects garbage whenever the heap has doubled: a fifth of what an API server of a small cluster does. Let it grow
# to five times, but not beyond what a laptop can spare.
_GO: Final = {"GOGC": "400", "GOMEMLIMIT": "1536MiB"}
_RESET: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)


class ProcessRecord(BaseModel, frozen=True):
    """A process, told apart from any other that has or had its pid."""

    pid: int
    stamp: str


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _look(pid: int) -> tuple[str, bool] | None:
    """Return the start stamp of a process and whether it is a zombie, or None if there is no such process."""
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
    # proc(5): the name in brackets may hold anything; state is the first field after it, the start time the 20th.
    fields = text.rpartition(")")[2].split()
    return f"{_boot_id()}/{fields[19]}", fields[0] in "ZX"


def record_of(pid: int) -> ProcessRecord:
    """Return the record of a process; of one that is gone, a record that matches nothing.

    On Linux the stamp is the boot's id and the start in clock ticks since that boot, which no change of the clock
    moves.
    """
    look = _look(pid)
    return ProcessRecord(pid=pid, stamp=look[0] if look else "")


def current() -> ProcessRecord:
    """Return the record of this process."""
    return record_of(os.getpid())


def alive(record: ProcessRecord) -> bool:
    """Return whether the process still runs; collects it if it ended and is a child of this one."""
    look = _look(record.pid)
    if look is None or look[0] != record.stamp:
        return False
    try:
        # A leader shows as a zombie while its other threads still end: only this tells when a child is really gone.
        return os.waitpid(record.pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return not look[1]


def children(record: ProcessRecord, *, deep: bool = False) -> list[ProcessRecord]:
    """Return the processes that this one started and that run; with ``deep`` also those that they started."""
    if not alive(record):
        return []
    try:
        found = psutil.Process(record.pid).children(recursive=deep)
    except psutil.NoSuchProcess:
        return []
    return [record_of(process.pid) for process in found]


def closing_inherited() -> list[tuple[int, int]]:
    """Return what to do in a new process so that it has none of the files that our starter left open for us.

    Else a lock of theirs (``flock file trellis dev up``) would stay held for as long as the cluster runs.
    """
    found = []
    for path in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile: the one that reads this directory
            if int(path.name) > _STANDARD_ERROR and os.get_inheritable(int(path.name)):
                found.append((os.POSIX_SPAWN_CLOSE, int(path.name)))
    return found


def spawn(argv: Sequence[str], *, log: Path, token: str) -> ProcessRecord:
    """Start a program in a session of its own, its output appended to ``log``, marked with ``token``.

    It sees only a few variables of our environment: etcd and Jaeger would take options from others. A session of
    its own keeps the terminal's Ctrl-C away from it.

    Raises:
        OSError: if the program cannot be executed.
    """
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _GO | {MARK: token}
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
    """Send a signal if it is still that process; return whether it was."""
    if not alive(record):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, number)
        return True
    return False


def freeze(record: ProcessRecord) -> bool:
    """Stop a process (SIGSTOP), and return when it does stand still; return whether it was there to be stopped."""
    if not send(record, signal.SIGSTOP):
        return False
    deadline = time.monotonic() + _KILL_SECONDS
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(record.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
            time.sleep(_POLL)
    return True


def wait_gone(records: Iterable[ProcessRecord], seconds: float) -> list[ProcessRecord]:
    """Wait until the processes have ended; return those that have not after ``seconds``."""
    left = list(records)
    deadline = time.monotonic() + seconds
    while left := [record for record in left if alive(record)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return left


def end(records: Iterable[ProcessRecord], *, grace: float) -> None:
    """End processes: SIGTERM, ``grace`` seconds, then SIGKILL; no grace: SIGKILL at once. Returns when all are gone.

    A stopped process (SIGSTOP) does not see SIGTERM before it is continued; SIGKILL it cannot escape.
    """
    left = list(records)
    if grace > 0:
        for record in left:
            send(record, signal.SIGTERM)
        left = wait_gone(left, grace)
    for record in left:
        send(record, signal.SIGKILL)
    wait_gone(left, _KILL_SECONDS)
