"""Holds the pipe to a supervisor process: whatever becomes of us, what we started does not stay behind.

In: a state directory and the token of its processes. Out: a supervisor that waits. Called by `up` (until the cluster
is complete) and by owners of throwaway clusters and servers (for as long as they live).
Invariant: between :func:`guard` and :meth:`Guard.release` or :meth:`Guard.abandon`, the end of this process, by
SIGKILL too, makes the supervisor kill the marked processes and remove the directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from trellis_dev.localcluster import supervisor
from trellis_dev.localcluster.processes import ProcessRecord, closing_inherited, record_of, wait_gone

_EXIT_SECONDS = 15.0


@dataclass
class Guard:
    """Our end of the pipe."""

    process: ProcessRecord
    pipe: int

    def release(self) -> None:
        """Let what was started live on without us."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.pipe, b"1")
        self._close()

    def abandon(self) -> None:
        """Have the supervisor clean up now; returns when it has."""
        self._close()

    def _close(self) -> None:
        os.close(self.pipe)
        wait_gone([self.process], _EXIT_SECONDS)


def guard(directory: Path, token: str, lock: Path | None = None) -> Guard:
    """Start a supervisor for the directory and the processes that carry the token.

    With a lock file, it removes the directory under that lock, and only if ``state.json`` in it has the token.

    Raises:
        OSError: if no process can be started.
    """
    ours, theirs = os.pipe()[::-1]
    try:
        # By path and with -P: the package itself would cost the supervisor tens of megabytes it has no use for.
        argv = [sys.executable, "-P", supervisor.__file__, str(directory), token]
        argv += [str(lock)] if lock is not None else []
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), *null, *closing_inherited()]
        pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)
    finally:
        os.close(theirs)
    return Guard(record_of(pid), ours)
