"""Makes SIGTERM end process 1 of a container, as it ends any other process.

In: the PID of this process. Out: a signal handler. Called by each ``__main__`` before slow imports; itself imports
almost nothing, because no handler exists until then. Reason: the kernel has no default signal actions for process 1 of
a PID namespace and drops signals without a handler. A pod deleted while its program starts would run until the end of
its grace period, 30 s. Invariant: a later handler of SIGTERM replaces this one.
"""

from __future__ import annotations

import os
import signal

_INIT = 1


def end_at_sigterm() -> None:
    """Install the default action of SIGTERM in process 1: immediate exit with status 143."""
    if os.getpid() == _INIT:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: object) -> None:
    # No exception: an import that catches all exceptions must not delay the exit, and there is nothing to clean up yet.
    os._exit(128 + number)
