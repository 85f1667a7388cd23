"""Holds the pipe to a supervisor process, which cleans up if this process ends.

In: a state directory and the token of its processes. Out: a waiting supervisor. Called by `up` (until the cluster is
complete) and by owners of temporary clusters and servers (for their lifetime).
Invariant: between :func:`guard` and :meth:`Guard.release` or :meth:`Guard.abandon`, the end of this process, even by
SIGKILL, makes the supervisor kill the marked processes and remove the directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from trellis_dev.localcluster import supervisor
from trellis_dev.localcluster.processes import ProcessRecord, closing_inherited, record_of, wait_ended

_EXIT_SECONDS = 15.0


@dataclass
class Guard:
    """The end of the pipe in this process."""

    process: ProcessRecord
    pipe: int

    def release(self) -> None:
        """Stop the supervision; the started processes keep running."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.pipe, b"1")
        self._close()

    def abandon(self) -> None:
        """Trigger the cleanup by the supervisor, and wait for it."""
        self._close()

    def _close(self) -> None:
        os.close(self.pipe)
        wait_ended([self.process], _EXIT_SECONDS)


def guard(directory: Path, token: str, lock: Path | None = None) -> Guard:
    """Start a supervisor for the directory and the processes with the token.

    With a lock file, it removes the directory under that lock, and only if ``state.json`` in it has the token.

    Raises:
            OSError: no process can be started.
    """
    ours, theirs = os.pipe()[::-1]
    try:
        # By path and with -P: importing the package would add tens of megabytes to the supervisor.
        argv = [sys.executable, "-P", supervisor.__file__, str(directory), token]
        argv += [str(lock)] if lock is not None else []
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), *null, *closing_inherited()]
        pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)
    finally:
        os.close(theirs)
    return Guard(record_of(pid), ours)
