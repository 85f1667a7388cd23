"""Ticks of the engine while guests run, for the deadlines of calls.

Called by ``instance`` around each call. Invariant: while no guest runs, there are no ticks and no thread wakes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from controller_host.guest.limits import TICK


class Ticker:
    """Calls ``tick`` every :data:`TICK` while a thread is inside ``with``; otherwise its own thread waits."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick: Final = tick
        self._lock: Final = threading.Lock()
        self._inside = 0
        self._some: Final = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._some.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="guest-ticker", daemon=True)
                self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._some.clear()

    def ticking(self) -> bool:
        """Return whether guests run."""
        return self._some.is_set()

    def _run(self) -> None:
        while True:
            self._some.wait()
            time.sleep(TICK)
            self._tick()
