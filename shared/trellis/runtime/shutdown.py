"""Shutdown of a process: signals, the grace period and its parts, and the forced exit.

In: SIGTERM, SIGINT. Out: a set ``stop``, time budgets, and an exit status. Called by ``trellis.runtime.run``.
Invariants: the process exits within its grace period, even if a component hangs; the status is 0 if all components
returned, 1 after a forced exit, 128 + signal after a second signal.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

from trellis.config.timings import EndingTimings
from trellis.telemetry import get_logger

_STATUS_FORCED: Final = 1
_STATUS_SIGNAL: Final = 128

# Shares of the grace period at whose end each phase is over. The rest is for the health server.
DRAINED: Final = 0.5
CLOSED: Final = 0.65
RELEASED: Final = 0.8
REPORTED: Final = 0.9

_log = get_logger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class Grace:
    """The grace period of one service, which starts with the request to stop."""

    seconds: float
    _began: float | None = field(default=None, init=False)

    def begin(self) -> None:
        """Start the clock, once."""
        if self._began is None:
            self._began = time.monotonic()

    async def begin_at(self, stop: asyncio.Event) -> None:
        """Start the clock when ``stop`` is set."""
        await stop.wait()
        self.begin()

    def left(self, share: float, *, most: float = float("inf")) -> float:
        """Return the seconds until this share of the period is over, at most ``most``, at least 0.

        Before its start, the period is complete.
        """
        spent = 0.0 if self._began is None else time.monotonic() - self._began
        return min(most, max(0.0, self.seconds * share - spent))


async def ends_within(seconds: float, work: Coroutine[Any, Any, None], what: str) -> bool:
    """Run ``work`` with a timeout, and cancel it then.

    Returns:
        True if it ended in time. Its error is logged and not raised, because it must not delay the shutdown.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        ended = task.done()
        task.cancel()
    if not ended:
        _log.warning("component did not stop in time", component=what, seconds=round(seconds, 1))
    elif not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("task failed while stopping", component=what, error=repr(error))
    return ended


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what ``work`` returns, or None as soon as ``stop`` is set."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for pending in (task, stopped):
            pending.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


class Ending:
    """Controls the shutdown of the process: sets ``stop`` at the first signal, and exits after the grace period.

    A context manager around the run of the services, in the main thread. It is left when all components have returned.
    """

    def __init__(
        self, stop: asyncio.Event, shutdown_grace_period: float, timings: EndingTimings = EndingTimings()
    ) -> None:
        self._stop = stop
        self._grace = shutdown_grace_period
        self._timings = timings
        self._loop = asyncio.get_running_loop()
        self._requested_at: float | None = None
        self._former: dict[int, Any] = {}
        # Signal handlers must not block: SimpleQueue.put is safe in them.
        self._signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._status = _STATUS_FORCED

    def __enter__(self) -> Self:
        # Not the loop's own handlers: they are called by the loop, so not while a handler blocks it.
        for number in (signal.SIGTERM, signal.SIGINT):
            self._former[number] = signal.signal(number, self._signalled)
        # A daemon thread: it must not delay the exit itself.
        threading.Thread(target=self._see_to_the_end, name="ending", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        if kind is None:
            self._status = 0
        self._signals.put(None)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._requested_at is None:
            self._requested_at = now
            self._signals.put(number)
            self._loop.call_soon_threadsafe(self._stop.set)
        elif now - self._requested_at >= self._timings.echo:
            self._signals.put(number)

    def _see_to_the_end(self) -> None:
        """Wait in a thread, because the event loop may hang."""
        if self._signals.get() is None:
            return  # ended without a signal
        try:
            word = self._signals.get(timeout=self._grace)
        except queue.Empty:
            _log.error(
                "shutdown grace period exceeded, exiting: the lease expires by itself",
                shutdown_grace_period=self._grace,
            )
            self._end(_STATUS_FORCED)
            return
        if word is not None:
            _log.warning("second termination signal, exiting: the lease expires by itself")
            self._end(_STATUS_SIGNAL + word)
            return
        time.sleep(self._timings.afterglow)
        self._end(self._status)

    @staticmethod
    def _end(status: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
