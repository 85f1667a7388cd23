"""Loads the engine for the first guest: clusters without controllers do not require it.

In: the request for a guest, in a thread that can block. Out: the runtime, or the error. Called by ``guests``.
Invariants: only this module imports wasmtime, which increases the memory and the start time of a process (checked by a
test); one thread loads while other threads wait, never the event loop; after a failure, one thread retries at
intervals. Source: ADR 80.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller_host.guest.limits import CompileBounds
from controller_host.guest.refusals import printable
from controller_host.timings import TurnTimings
from trellis.telemetry import get_logger

if TYPE_CHECKING:
    from controller_host.guest.runtime import Runtime

ENGINE_UNAVAILABLE: Final = "EngineUnavailable"
"""Reason: no guest can run."""
_LONGEST: Final = 400

_log = get_logger(__name__)


class EngineUnavailable(Exception):  # noqa: N818 - named after the outcome
    """No guest can run; the message is one line with the cause."""


class Loading:
    """Loads the engine by ``load`` on the first request. ``report`` is called in that thread with "" or the error.

    After a failure, the next attempt is ``again`` seconds later.
    """

    def __init__(
        self,
        load: Callable[[], Runtime],
        report: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        *,
        again: float = TurnTimings().engine,
    ) -> None:
        self._again: Final = again
        self._load: Final = load
        self._report: Final = report
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._runtime: Runtime | None = None
        self._again_at = 0.0
        self._reason = ""
        self._closed: Final = threading.Event()

    def get(self) -> Runtime:
        """Return the runtime; the first caller waits until it is loaded, some tenths of a second.

        Raises:
            EngineUnavailable: loading the engine failed, now or in a recent attempt.
        """
        if self._runtime is not None:
            return self._runtime
        with self._lock:
            return self._runtime or self._loaded()

    @contextmanager
    def if_loaded(self) -> Iterator[Runtime | None]:
        """Yield the runtime if it is loaded, else None; the engine is not loaded while the block runs."""
        with self._lock:
            yield self._runtime

    def close(self) -> None:
        """Stop loading and compiling."""
        self._closed.set()
        if self._runtime is not None:
            self._runtime.close()

    def _loaded(self) -> Runtime:
        if self._closed.is_set():
            raise EngineUnavailable("this host stops: another replica continues the controller")
        if self._reason and self._clock() < self._again_at:
            raise EngineUnavailable(self._reason)
        began = self._clock()
        try:
            runtime = self._load()
        except Exception as error:
            self._failed(error)
            raise EngineUnavailable(self._reason) from error
        self._runtime, self._reason = runtime, ""
        if self._closed.is_set():  # after the line above: a concurrent `close` saw the runtime, or set the flag before
            runtime.close()
        _log.info("Wasm engine loaded", seconds=round(self._clock() - began, 3))
        self._report("")
        return runtime

    def _failed(self, error: Exception) -> None:
        self._reason = printable(
            f"the engine of controllers cannot be loaded: {type(error).__name__}: {error}", _LONGEST
        )
        self._again_at = self._clock() + self._again
        _log.error("Wasm engine unavailable, no controller can run", error=self._reason)
        self._report(self._reason)


def local(
    directory: Path, bounds: CompileBounds, report: Callable[[str], None], again: float = TurnTimings().engine
) -> Loading:
    """Return the loader of the engine of this process; its compiled modules are in ``directory``."""
    return Loading(partial(_runtime, directory, bounds), report, again=again)


def _runtime(directory: Path, bounds: CompileBounds) -> Runtime:
    from controller_host.guest.runtime import Runtime  # noqa: PLC0415 - it imports wasmtime

    return Runtime(directory, bounds)
