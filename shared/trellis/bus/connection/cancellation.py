"""Notices a cancellation that was lost.

Called in loops around the NATS client, which waits with ``asyncio.wait_for``. Before Python 3.12 rebuilt it on
``asyncio.timeout`` it drops a cancellation that comes together with the answer, and the loop would go on forever.
Invariant: a task that was asked to end ends at its next round.
"""

from __future__ import annotations

import asyncio


def check() -> None:
    """Raise CancelledError if the current task was cancelled and nothing came of it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        raise asyncio.CancelledError
