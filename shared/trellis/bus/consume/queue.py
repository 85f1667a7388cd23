"""A queue of keys: at most one run per key, different keys in parallel, failures with retries.

In: keys, each with the acknowledgement of the message that named it. Out: runs, and acknowledgements of completed work.
Called by handlers, informers and timers of a service. Independent of NATS and Kubernetes.

Invariants, as in the workqueue of client-go: a key that is added during its run gets a second run, unless that run
reads the new state itself (``cancel_pending``); a key is never in two runs; no added key is lost. A message is
acknowledged only after a run of its key that started after the message arrived, or after a watch delivered its content
(``cover``).
Failing keys do not delay healthy ones: see ``lanes``.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from trellis.bus.consume.lanes import Lanes
from trellis.bus.consume.timers import LoopTimers, TimerHeap, Timers
from trellis.limits.backoff import Backoff
from trellis.telemetry import Telemetry, TraceContext, get_logger, joined

K = TypeVar("K", bound=Hashable)

Run = Callable[[K, TraceContext | None], Awaitable[float | None]]

_CANCELLATIONS: Final = 2

_log = get_logger(__name__)


class Acknowledgement(Protocol):
    """The acknowledgement of a message. ``token`` is the same for every delivery of one message."""

    @property
    def token(self) -> Hashable:
        """Identity of the message."""

    def __call__(self) -> Awaitable[None]:
        """Acknowledge the message."""


@dataclass(slots=True)
class _Entry:
    """The pending work of a key: time of the first add, acknowledgements of messages, and trace."""

    since: float
    acks: dict[Hashable, Acknowledgement] = field(default_factory=dict)
    trace: TraceContext | None = None

    def absorb(self, newer: _Entry) -> None:
        """Add the work that arrived during a failed run; a redelivery replaces the previous delivery."""
        self.acks |= newer.acks
        self.trace = joined(self.trace, newer.trace)


@dataclass(frozen=True, slots=True)
class _Working(Generic[K]):
    """The arguments of ``work``, and the context of its caller."""

    run: Run[K]
    may_begin: Callable[[], bool]
    context: contextvars.Context


class KeyedQueue(Generic[K]):
    """The queue of one controller, created before the code that adds keys and before the run, an argument of ``work``.

    An add while a key backs off runs it at once, because its state changed. ``cancel``: timeout in seconds for a
    cancelled run to end; a run is cancelled twice.
    """

    def __init__(
        self,
        *,
        workers: int,
        name: str,
        telemetry: Telemetry,
        backoff: Backoff | None = None,
        timers: Timers | None = None,
        cancel: float = 0.5,
    ) -> None:
        self.name: Final = name
        self._workers = workers
        self._telemetry = telemetry
        self._backoff = backoff or Backoff()
        self._timers = timers or LoopTimers()
        self._cancel = cancel
        # Requested by the last run of a key: any run that starts earlier replaces it.
        self._retries = TimerHeap[K](self._timers, self._retry)
        self._later = TimerHeap[K](self._timers, self.add)  # requested by callers: kept, even if a run starts earlier
        self._entries: dict[K, _Entry] = {}  # keys that need a run: client-go's dirty set
        self._running: dict[K, asyncio.Task[None]] = {}
        self._current: dict[K, _Entry] = {}  # work that the runs in progress cover
        self._ready = Lanes[K]()  # keys that need a run and are not running
        self._failures: dict[K, int] = {}
        self._blamed: dict[K, _Entry] = {}  # pending work of failed runs; added to the next run of the key
        self._working: _Working[K] | None = None
        self._acknowledging: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def depth(self) -> int:
        """Number of keys that wait for a run or are running, without those that back off."""
        return len(self._ready) + len(self._running)

    @property
    def backing_off(self) -> int:
        """Number of pending timers: of failed keys, of keys with a requested run, and of ``add_after``."""
        return len(self._retries) + len(self._later)

    @property
    def oldest_seconds(self) -> float:
        """Age in seconds of the oldest work without a successful run, failing keys included; 0 if there is none."""
        since = [entry.since for owed in (self._entries, self._blamed) for entry in owed.values()]
        return self._timers.now() - min(since) if since else 0.0

    def add(self, key: K, ack: Acknowledgement | None = None, trace: TraceContext | None = None) -> None:
        """Add the key; adds before the start of its run are merged into one run.

        A redelivery of a message whose first delivery is still pending only replaces the acknowledgement.
        """
        if ack is not None and self._is_owed(key, ack):
            return
        entry = self._owe(key)
        if ack is not None:
            entry.acks[ack.token] = ack
        entry.trace = joined(entry.trace, trace)
        if key not in self._running:
            self._ready.add(key)
        self._pump()

    def cover(self, key: K, ack: Acknowledgement) -> None:
        """Acknowledge a message without new content after the pending or current run of its key, or at once if none.

        Called after a watch delivered the same content and added the key, so that a run reads it or has read it.
        """
        for owed in (self._entries.get(key), self._current.get(key), self._blamed.get(key)):
            if owed is not None:
                owed.acks[ack.token] = ack
                return
        nothing = _Entry(self._timers.now(), {ack.token: ack})
        acknowledging = asyncio.get_running_loop().create_task(self._acknowledge(key, nothing))
        self._acknowledging.add(acknowledging)
        acknowledging.add_done_callback(self._acknowledging.discard)

    def add_after(self, key: K, delay: float) -> None:
        """Add the key after ``delay`` seconds; of several pending delays only the shortest counts."""
        self._later.set(key, delay)

    def forget(self, key: K) -> None:
        """Reset the backoff of the key, because the cause of its failures has changed."""
        self._failures.pop(key, None)

    def cancel_pending(self, key: K) -> bool:
        """Cancel the pending run of a key whose current run is about to re-read the state.

        Returns True if there was a pending run: if work remains afterwards, the current run adds the key. A pending run
        for a message or a trace is not cancelled.
        """
        entry = self._entries.get(key)
        if entry is None or entry.acks or entry.trace is not None or key not in self._current:
            return False
        del self._entries[key]
        return True

    async def wait_idle(self) -> None:
        """Wait until no key waits for a run or is running; keys that back off may remain."""
        await self._idle.wait()

    async def work(self, run: Run[K], may_begin: Callable[[], bool] = lambda: True) -> None:
        """Run keys until cancelled. Runs in progress are cancelled too, and repeated when ``work`` is called next.

        ``run`` receives the key and the latest trace that named it, with the earlier ones in ``beside``. It returns
        None when the key is done, or the seconds until its next run. If it raises, the key is retried forever with
        backoff.

        ``may_begin`` is called before each run. After it returned False no run may start until this is cancelled: a
        process that was frozen has ready keys when it resumes, before it detects that another replica leads.
        """
        forget = self._telemetry.metrics.queue(
            self._telemetry.service, self.name, lambda: self.depth, lambda: self.oldest_seconds
        )
        self._working = _Working(run, may_begin, contextvars.copy_context())
        for key in list(self._blamed):
            self.add(key)
        self._pump()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._working = None
            await self._cancel_running()
            forget()

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 (a grace period, not a deadline to raise at)
        """Start no further run; wait up to ``timeout`` seconds for those in progress, then cancel them."""
        self._working = None
        self._retries.clear()
        self._later.clear()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=timeout)
        await self._cancel_running()

    @property
    def unended(self) -> list[K]:
        """Keys whose cancelled runs did not end; valid after ``work`` has ended."""
        return list(self._running)

    async def _cancel_running(self) -> None:
        """Cancel runs and wait for them with a timeout; runs that do not end are abandoned.

        Cancels twice: wait_for of Python 3.11 drops a cancellation that arrives together with the answer.
        """
        for _ in range(_CANCELLATIONS):
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=self._cancel)
        if self._running:
            _log.error(
                "handlers did not stop when cancelled", queue=self.name, keys=[str(key) for key in self._running]
            )

    def _owe(self, key: K) -> _Entry:
        """Return the pending work of the key; a new entry starts now."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self._timers.now())
            self._idle.clear()
        return entry

    def _retry(self, key: K) -> None:
        """Add a key whose timer has expired."""
        self._owe(key)
        if key not in self._running:
            self._ready.add(key, retry=key in self._failures)
        self._pump()

    def _is_owed(self, key: K, ack: Acknowledgement) -> bool:
        """Return True if a run in progress or a pending retry covers this message; keep the newer acknowledgement."""
        for owed in (self._current.get(key), self._blamed.get(key)):
            if owed is not None and ack.token in owed.acks:
                owed.acks[ack.token] = ack
                return True
        return False

    def _pump(self) -> None:
        """Start runs while there are keys and workers."""
        while (
            (work := self._working) is not None
            and self._ready
            and len(self._running) < self._workers
            and work.may_begin()
        ):
            key = self._ready.take()
            # Not the adder's context: its span must not become the parent of the run.
            task = asyncio.get_running_loop().create_task(self._attempt(key, work), context=work.context.copy())
            self._running[key] = task
            task.add_done_callback(partial(self._finished, key))

    def _finished(self, key: K, task: asyncio.Task[None]) -> None:
        del self._running[key]
        entry = self._current.pop(key, None)
        if task.cancelled() and entry is not None:
            self._blamed[key] = entry  # run when work resumes
        if key in self._entries:
            self._ready.add(key)
        self._pump()
        if not self.depth:
            self._idle.set()

    def _take(self, key: K) -> _Entry:
        """Return the pending work of the key: new since the start of its last run, and left by failed runs."""
        entry = self._entries.pop(key)
        self._retries.discard(key)
        if (owed := self._blamed.pop(key, None)) is not None:
            owed.absorb(entry)
            entry = owed
        self._current[key] = entry
        return entry

    async def _attempt(self, key: K, work: _Working[K]) -> None:
        """Run the key once, then send its acknowledgements or schedule its retry."""
        if not work.may_begin():
            return  # the run of the key stays pending
        # Taken only here, after the add: work that was added in between needs no separate run.
        entry = self._take(key)
        metrics, service = self._telemetry.metrics, self._telemetry.service
        began = self._timers.now()
        try:
            again = await work.run(key, entry.trace)
        except Exception as error:  # noqa: BLE001 (any error is logged, counted, and retried forever)
            self._failed(key, entry, error)
            return
        finally:
            metrics.handler_seconds.labels(service, self.name).observe(self._timers.now() - began)
        self._failures.pop(key, None)
        if again is not None:
            self._retries.set(key, again)
        await self._acknowledge(key, entry)
        self._current.pop(key, None)  # no further acknowledgement joins this run

    async def _acknowledge(self, key: K, entry: _Entry) -> None:
        while entry.acks:
            _, ack = entry.acks.popitem()
            try:
                await ack()
            except Exception as error:  # noqa: BLE001 (the run is done; the redelivered message will be acknowledged)
                _log.warning("acknowledgement failed", queue=self.name, key=str(key), error=str(error))

    def _failed(self, key: K, entry: _Entry, error: Exception) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures)
        self._telemetry.metrics.retries_total.labels(self._telemetry.service, self.name).inc()
        _log.warning(
            "handler failed, retrying",
            queue=self.name,
            key=str(key),
            failures=failures,
            retry_seconds=round(delay, 1),
            error=f"{type(error).__name__}: {error}",
        )
        self._blamed[key] = entry
        self._retries.set(key, delay)
