"""Ends what an owner left behind: a small process that watches a pipe to the process that starts a cluster.

In: a directory, a token, maybe a lock file and, on standard input, a pipe whose other end the owner holds. Out:
nothing if the owner writes a byte first (it is content); else every process that carries the token is killed and the
directory removed. Run as a script by :mod:`trellis_dev.localcluster.guard`, so that it loads little.
Invariant: it holds for an owner that died by SIGKILL too, because the kernel closes the pipe. A process carries the
token in its environment from its first instruction, so none is missed that was started but not yet recorded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

import psutil
from filelock import FileLock

MARK: Final = "TRELLIS_CLUSTER_TOKEN"
"""Environment variable by which processes of a cluster are known."""

_QUIET_SWEEPS: Final = 3
_PAUSE: Final = 0.05
_SWEEP_SECONDS: Final = 10.0
_CGROUPS: Final = Path("/sys/fs/cgroup")


def marked(token: str) -> list[int]:
    """Return the pids of this user's live processes that carry the token, and of what they started without it.

    A wasmCloud host gives the providers it starts an empty environment; they stay in the session that it leads.
    """
    found: list[int] = []
    others: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE:
                (found if process.environ().get(MARK) == token else others).append(process.pid)
    leaders = {pid for pid in found if _session(pid) == pid}
    return found + [pid for pid in others if _session(pid) in leaders]


def _session(pid: int) -> int | None:
    """Return the session of a process; None if it is gone."""
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None


def sweep(token: str) -> None:
    """Kill every process that carries the token, until several looks in a row find none; remove its control groups.

    One look is not enough: a process between fork and exec does not show its new environment yet.
    """
    quiet = 0
    deadline = time.monotonic() + _SWEEP_SECONDS
    while quiet < _QUIET_SWEEPS and time.monotonic() < deadline:
        pids = marked(token)
        quiet = 0 if pids else quiet + 1
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)
    _remove_trunks(token)


def trunk(token: str) -> str:
    """Return the name of the control group above those of a cluster's real nodes, the same in each hierarchy."""
    return f"trellis-{token}"


def remove_groups(group: Path) -> None:
    """Remove a control group with all below it, if there is one.

    Raises:
        OSError: if a process is still in one after some seconds.
    """
    deadline = time.monotonic() + _SWEEP_SECONDS
    for directory, _, _ in os.walk(group, topdown=False):
        while True:
            try:
                Path(directory).rmdir()
            except FileNotFoundError:
                break
            except OSError:
                # The kernel lets go of a group a moment after its last process has ended.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                break


def _remove_trunks(token: str) -> None:
    if not _CGROUPS.is_dir():
        return
    found = [Path(top) / trunk(token) for top, names, _ in os.walk(_CGROUPS) if trunk(token) in names]
    for group in found:
        with contextlib.suppress(OSError):
            remove_groups(group)


def main(directory: Path, token: str, lock: Path | None) -> None:
    """Wait for the owner's byte or its end; clean up in the second case.

    With a lock, others may meanwhile have removed the directory and made another of the same name: under the lock it
    is removed only if its state still has the token. Before it has its name the directory is called ``.<token>``.
    """
    if os.read(sys.stdin.fileno(), 1):
        return
    sweep(token)
    with FileLock(lock) if lock is not None else contextlib.nullcontext():
        shutil.rmtree(directory.with_name(f".{token}"), ignore_errors=True)
        state = directory / "state.json"
        if lock is None or (state.exists() and token in state.read_text(encoding="utf-8")):
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None)
