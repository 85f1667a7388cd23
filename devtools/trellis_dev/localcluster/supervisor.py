"""Cleans up after an owner: a small process that watches a pipe to the process that starts a cluster.

In: a directory, a token, optionally a lock file and, on standard input, a pipe whose other end the owner holds. Out:
nothing if the owner first writes a byte; otherwise every process with the token is killed and the directory removed.
Run as a script by :mod:`trellis_dev.localcluster.guard`, so that it loads little.
Invariant: this includes an owner killed by SIGKILL, because the kernel closes the pipe. A process has the token in its
environment from its first instruction, so started but unrecorded processes are included.
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

CLUSTER_VARIABLE: Final = "_TRELLIS_CLUSTER_TOKEN"
"""Environment variable that identifies processes of a cluster. Its name does not begin with ``TRELLIS_``, because it is
no setting: the services of the demo, which have it too, report unknown settings."""

_QUIET_SWEEPS: Final = 3
_PAUSE: Final = 0.05
_SWEEP_SECONDS: Final = 10.0
_CGROUPS: Final = Path("/sys/fs/cgroup")


def marked(token: str) -> list[int]:
    """Return the pids of the running processes of this user with the token, and of child processes without it.

    A wasmCloud host starts providers with an empty environment; they stay in the session that it leads.
    """
    found: list[int] = []
    others: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE:
                (found if process.environ().get(CLUSTER_VARIABLE) == token else others).append(process.pid)
    leaders = {pid for pid in found if _session(pid) == pid}
    return found + [pid for pid in others if _session(pid) in leaders]


def _session(pid: int) -> int | None:
    """Return the session of a process; None if it has ended."""
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None


def sweep(token: str) -> None:
    """Kill every process with the token, until several consecutive scans find none; remove its control groups.

    One scan is not sufficient: a process between fork and exec does not have its new environment yet.
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
    """Return the name of the control group above those of the real nodes, the same in each hierarchy."""
    return f"trellis-{token}"


def remove_groups(group: Path) -> None:
    """Remove a control group and its children, if it exists.

    Raises:
        OSError: a process is still in one after some seconds.
    """
    deadline = time.monotonic() + _SWEEP_SECONDS
    for directory, _, _ in os.walk(group, topdown=False):
        while True:
            try:
                Path(directory).rmdir()
            except FileNotFoundError:
                break
            except OSError:
                # The kernel releases a group shortly after its last process has ended.
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
    """Wait for the byte of the owner or its end; clean up in the second case.

    With a lock: another process can have removed the directory and created one with the same name, so under the lock it
    is removed only if its state still has the token. Before its final name, the directory is named ``.<token>``.
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
