"""Detects a lost cancellation.

Called in loops around the NATS client, which waits with ``asyncio.wait_for``. Before Python 3.12, which rebuilt it on
``asyncio.timeout``, it drops a cancellation that arrives together with the answer, and the loop never ends.
Invariant: a cancelled task ends at its next iteration.
"""

from __future__ import annotations

import asyncio


def check() -> None:
    """Raise CancelledError if the current task was cancelled and is still running."""
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        raise asyncio.CancelledError
