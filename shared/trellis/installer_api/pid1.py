"""Has SIGTERM end the first process of a container as it ends any other.

In: this process's number. Out: a handler. Called by each ``__main__`` before it imports anything that takes its time;
imports next to nothing itself, as before it no handler is there. Why: the kernel gives process 1 of a PID namespace no
default action for signals and drops what comes before there is a handler, so a pod that is deleted while its program
starts would stay until the kubelet's patience is over, 30 s. Invariant: who takes SIGTERM later, has it.
"""

from __future__ import annotations

import os
import signal

_INIT = 1


def end_at_sigterm() -> None:
    """Give SIGTERM its default action, an end at once with status 143, where the kernel does not: in process 1."""
    if os.getpid() == _INIT:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: object) -> None:
    # No exception: an import that catches all of them must not hold it up, and nothing was begun that is to be undone.
    os._exit(128 + number)
