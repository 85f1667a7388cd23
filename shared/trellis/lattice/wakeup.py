"""Wakes one task, which waits for a request or for some time.

In: requests. Out: the end of the wait. Used by the tasks of each lattice. An ``asyncio.Event`` needs 0.9 KiB for a
queue of waiting tasks, and there are seven of these waits for each lattice.
"""

from __future__ import annotations

import asyncio


class Wakeup:
    """A flag that at most one task waits for."""

    __slots__ = ("_set", "_waiter")

    def __init__(self) -> None:
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    def is_set(self) -> bool:
        """Return whether it was set, and not cleared since."""
        return self._set

    def set(self) -> None:
        """Wake the task; until ``clear``, no wait blocks."""
        self._set = True
        if self._waiter is not None:
            _end(self._waiter)

    def clear(self) -> None:
        """Let the next wait block."""
        self._set = False

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until it is set, or for ``seconds``.

        Raises:
            RuntimeError: another task waits.
        """
        if self._set:
            return
        if self._waiter is not None:
            raise RuntimeError("another task waits for it")
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _end, self._waiter)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
