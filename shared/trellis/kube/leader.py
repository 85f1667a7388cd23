"""Leader election on a Lease: at most one process of a service works.

In: the name of a Lease and an identity. Out: ``lead`` runs while this process is the leader and is cancelled as soon as
that is uncertain. Called by the runtime of each service. Invariants: ``leading`` is false before another candidate can
take over, even if this process or its network was stopped in between; clocks of machines are never compared; the Lease
is released at shutdown. Several processes may hold a Lease together as one ``identity``; it expires soon after the last
of them stopped. Source: the Lease API; client-go also times changes of the record by the clock of the observer.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeading
from trellis.kube.lease import LeaseRecord, new_lease, read_lease, released, with_holder
from trellis.kube.resources import LEASES, Manifest, older
from trellis.kube.timings import LeaderTimings
from trellis.limits.backoff import Attempts, Backoff
from trellis.telemetry import get_logger

log = get_logger(__name__)
Lead = Callable[[asyncio.Event], Awaitable[None]]
"""The service's work: runs while leading; the event requests it to finish and return."""
_SHARED_TRIES = 6
"""Attempts of a renewal: the processes that share a lease renew it concurrently."""


class StillRunning(Exception):  # noqa: N818 - named after the state
    """Raised by ``lead`` if a part of it continues after its end: the lease is not released."""


def boot_clock() -> float:
    """Return monotonic seconds that include stops of the process and, if supported, suspension of the system."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def readiness_of(lease: str) -> str:
    """Return the name of a candidate's readiness for this lease."""
    return f"lease {lease}"


class Leader:
    """A candidate for one lease. Writers use ``kube.guarded(leader.check)``. ``follows``: called while not leading.

    ``shown``: set the metric of the service.
    """

    def __init__(  # noqa: PLR0913 (keywords, most of which have defaults)
        self,
        kube: Kube,
        *,
        lease: str,
        namespace: str,
        identity: str,
        follows: Callable[[], None] = lambda: None,
        timings: LeaderTimings | None = None,
        shown: bool = True,
    ) -> None:
        self._kube = kube
        self._name = lease
        self._namespace = namespace
        self._identity = identity
        self._timings = timings or kube.timings.leader
        self._follows = follows
        self._what = readiness_of(lease)
        self._lease: Manifest = new_lease(lease, namespace)
        self._held = False
        self._renewed_at = 0.0
        self._observed: LeaseRecord | None = None
        self._observed_at = 0.0
        self._looked_at = 0.0
        self._other_at = -math.inf
        self._reported: str | None = None
        self._shown = shown
        self._show(leading=False)

    @property
    def leading(self) -> bool:
        """True if this process certainly holds the lease: by the clock, so also right after it was stopped."""
        return self._held and boot_clock() - self._renewed_at < self._timings.renew_deadline

    def check(self) -> None:
        """Raise NotLeading unless ``leading``: the guard of every write."""
        if not self.leading:
            raise NotLeading(f"{self._identity} does not hold lease {self._namespace}/{self._name}")

    async def run(self, lead: Lead, stop: asyncio.Event) -> None:
        """Campaign, and run ``lead`` whenever the lease is acquired, until ``stop`` is set.

        If ``lead`` fails or returns unexpectedly, release the lease and campaign again after a wait. On cancellation,
        cancel ``lead`` and let the lease expire; on ``stop``, wait for ``lead`` to return and release the lease.
        """
        stopped = asyncio.create_task(stop.wait(), name="stop")
        attempts = Attempts(Backoff(self._timings.restart_first, self._timings.restart_most))
        try:
            while not stop.is_set():
                if not await self._try_to_take():
                    self._follows()
                    await asyncio.wait({stopped}, timeout=self._next_try())
                elif await self._reign(lead, stopped):
                    attempts.reset()
                else:
                    await asyncio.wait({stopped}, timeout=attempts.next())
        finally:
            stopped.cancel()

    # --- campaign ---

    async def _try_to_take(self) -> bool:
        """Acquire the lease if it is free, expired or held by this identity; return False after any error."""
        try:
            took = await self._take()
        except Conflict:
            return False  # another candidate was faster
        except KubeError as error:
            self._complain(error)
            return False
        if not took:
            self._follow()
        else:
            self._kube.health.note(self._what, "")
        self._reported = None
        return took

    def _follow(self) -> None:
        """Set the readiness of a follower: not ready if the holder is not a replica or does not renew the lease."""
        record, health = self._observed, self._kube.health
        if record is None:
            health.ready(self._what)
            return
        holder_text = f"Lease {self._namespace}/{self._name} is held by {record.holder}, which "
        unmarked = (
            f"{holder_text}has not annotated it: check that the holder is a replica of this service"
            if not record.marked
            else ""
        )
        health.note(self._what, unmarked)
        seconds = boot_clock() - self._observed_at
        if seconds > self._timings.duration:
            left = max(0.0, self._expires_in(record))
            health.not_ready(
                self._what, f"{holder_text}has not renewed it for {seconds:.0f} s; it expires in {left:.0f} s"
            )
        elif record.foreign:
            health.not_ready(
                self._what,
                f"{holder_text}is not a replica of this service: the last one was {record.marked}. Stop it; the Lease "
                "then expires and is acquired",
            )
        else:
            health.ready(self._what)

    async def _take(self, *, again: bool = True) -> bool:
        timeout = self._timings.call_timeout
        try:
            found = await self._kube.get(LEASES, self._name, self._namespace, timeout=timeout)
        except NotFound:
            found = new_lease(self._name, self._namespace)
            if self._timings.handover and self._observed is not None:
                # The holder of a deleted shared lease has until its expiry to re-create it.
                self._observe(self._observed)
                if not self._may_take():
                    return False
        else:
            self._observe(read_lease(found))
            if not self._may_take():
                return False
        began = boot_clock()
        try:
            await self._write(found, timeout)
        except (AlreadyExists, Conflict) as error:
            if self._timings.handover and again:
                return await self._take(again=False)  # perhaps written by a process of the same identity
            if isinstance(error, Conflict):
                raise
            return False
        self._held, self._renewed_at = True, began
        return True

    def _observe(self, record: LeaseRecord) -> None:
        now = boot_clock()
        # For a shared lease, only time with successful reads counts: in an outage its holder cannot renew it.
        blind = self._timings.handover > 0 and now - self._looked_at > self._timings.renew
        if record != self._observed or blind:
            self._observed, self._observed_at = record, now
        self._looked_at = now
        if record.holder not in {"", self._identity}:
            self._other_at = now

    def _may_take(self) -> bool:
        record = self._observed
        assert record is not None
        return record.holder in {"", self._identity} or self._expires_in(record) <= 0

    def _expires_in(self, record: LeaseRecord) -> float:
        duration = min(record.duration or self._timings.duration, self._timings.longest)
        return self._observed_at + duration - boot_clock()

    def _next_try(self) -> float:
        """Return the seconds until the next attempt: with jitter, and not later than the lease's expiry."""
        wait = self._timings.retry * random.uniform(0.8, 1.1)  # noqa: S311 - spreads load, guards no secret
        if self._observed is None or self._reported is not None:
            return wait
        return max(0.05, min(wait, self._expires_in(self._observed))) if self._observed.holder else wait

    # --- reign ---

    async def _reign(self, lead: Lead, stopped: asyncio.Task[bool]) -> bool:
        """Run ``lead`` until it ends, the lease is lost, or a stop is requested; False if it ended unexpectedly."""
        log.info("started leading", lease=self._name, identity=self._identity)
        self._show(leading=True)
        stopping = asyncio.Event()
        work = asyncio.ensure_future(lead(stopping))
        # Set readiness after the start of ``lead``, when it has registered its own conditions.
        asyncio.get_running_loop().call_soon(self._kube.health.ready, self._what)
        renewal = asyncio.create_task(self._renew_until_lost(), name=f"renew {self._name}")
        try:
            await asyncio.wait({work, renewal, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done() and not renewal.done():
                stopping.set()
                await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if renewal.done():
                error = None if renewal.cancelled() else renewal.exception()
                log.warning("stopped leading", lease=self._name, identity=self._identity, exc_info=error)
                return True
            return self._ended_as_requested(work, requested=stopping.is_set())
        finally:
            lost = renewal.done()
            self._held = self._held and not lost
            await _end(work)
            await _end(renewal)
            # A cancellation is like a crash: unfinished work must end before a new leader starts.
            current = asyncio.current_task()
            cancelled = current is not None and current.cancelling() > 0
            still_running = not work.cancelled() and isinstance(work.exception(), StillRunning)
            if not lost and not cancelled and not still_running:
                await self._release()
            self._held = False
            self._show(leading=False)

    def _ended_as_requested(self, work: asyncio.Future[None], *, requested: bool) -> bool:
        error = None if work.cancelled() else work.exception()
        if error is not None:
            log.error("leadership term failed", lease=self._name, exc_info=error)
            return False
        if not requested:
            log.error("leadership term ended unexpectedly", lease=self._name)
        return requested

    async def _renew_until_lost(self) -> None:
        """Renew until another holder is observed, or the deadline passes without a success.

        ``renew`` is measured from the start of a renewal: measured from its answer, ``leading`` would become false
        before the next renewal is answered if the API server answers after 2 s.
        """
        due = self._renewed_at + self._timings.renew
        while True:
            until = min(due, self._renewed_at + self._timings.renew_deadline)
            await asyncio.sleep(max(0.0, until - boot_clock()))
            left = self._renewed_at + self._timings.renew_deadline - boot_clock()
            if left <= 0:
                log.warning("lease not renewed in time", lease=self._name, identity=self._identity)
                return
            began = boot_clock()
            try:
                await self._renew(min(self._timings.call_timeout, left))
            except (Conflict, NotFound) as error:
                log.warning("lease lost", lease=self._name, error=str(error))
                return
            except (KubeError, TimeoutError) as error:
                self._complain(error)
                due = boot_clock() + self._timings.retry
            else:
                if not self.leading:
                    # The answer came after the deadline: writes were refused in the meantime, so the term has ended.
                    log.warning("lease renewed too late", lease=self._name, identity=self._identity)
                    return
                self._renewed_at = began
                self._reported = None
                self._kube.health.ready(self._what)
                due = began + self._timings.renew

    async def _renew(self, timeout: float) -> None:  # noqa: ASYNC109 - the client's time budget
        """Renew the lease; after a conflict, retry if this identity still holds it (an answer was lost).

        A lease that is older than the last written one comes from a backup of etcd: it counts as lost, because all
        reads and writes of this term may be undone. The next term lists all objects.
        """
        async with asyncio.timeout(timeout):
            lease, tries = self._lease, _SHARED_TRIES if self._timings.handover else 2
            for left in reversed(range(tries)):
                try:
                    await self._write(lease, timeout)
                except Conflict:
                    lease = await self._kube.get(LEASES, self._name, self._namespace, timeout=timeout)
                    undone = older(lease["metadata"]["resourceVersion"], self._lease["metadata"]["resourceVersion"])
                    if read_lease(lease).holder != self._identity or undone or not left:
                        raise
                else:
                    return

    async def _write(self, lease: Manifest, timeout: float) -> None:  # noqa: ASYNC109 - the client's time budget
        now = datetime.now(UTC)
        manifest = with_holder(lease, identity=self._identity, duration=self._timings.duration, now=now)
        if manifest["metadata"].get("resourceVersion"):
            self._lease = await self._kube.replace(LEASES, manifest, timeout=timeout)
        else:
            self._lease = await self._kube.create(LEASES, manifest, timeout=timeout)

    async def _release(self) -> None:
        """Release the lease, so that another candidate can acquire it immediately; otherwise it expires."""
        if not self.leading:
            return
        self._held = False
        timeout = self._timings.call_timeout
        try:
            try:
                await self._kube.replace(LEASES, self._given_back(self._lease), timeout=timeout)
            except Conflict:
                # The cancelled renewal may have reached the server.
                found = await self._kube.get(LEASES, self._name, self._namespace, timeout=timeout)
                if read_lease(found).holder != self._identity:
                    return
                await self._kube.replace(LEASES, self._given_back(found), timeout=timeout)
            log.info("lease released", lease=self._name, identity=self._identity)
        except KubeError as error:
            log.warning("lease not released, it expires by itself", lease=self._name, error=str(error))

    def _given_back(self, lease: Manifest) -> Manifest:
        now, seconds = datetime.now(UTC), self._timings.handover
        if seconds:
            return with_holder(lease, identity=self._identity, duration=seconds, now=now)
        return released(lease, now=now)

    @property
    def holder(self) -> str:
        """The last observed holder of the lease, "" if there was none."""
        return self._observed.holder if self._observed is not None else ""

    @property
    def seconds_since_other(self) -> float:
        """Seconds since another holder was last observed, infinite if never."""
        return boot_clock() - self._other_at

    @property
    def record(self) -> LeaseRecord:
        """The lease as last written by this process."""
        return read_lease(self._lease)

    # --- readiness, logs and metrics ---

    def _complain(self, error: KubeError | TimeoutError) -> None:
        """Report an error: not ready, and one warning per cause."""
        reason = self._kube.describe_error(error) if isinstance(error, KubeError) else "no answer in time"
        if isinstance(error, NotFound):
            reason = (
                f"namespace {self._namespace} does not exist: create it with kubectl create namespace {self._namespace}"
            )
        self._kube.health.not_ready(self._what, reason)
        cause = getattr(error, "reason", "Timeout")
        if self._reported != cause:
            log.warning("lease unavailable, retrying", lease=f"{self._namespace}/{self._name}", error=reason)
        self._reported = cause

    def _show(self, *, leading: bool) -> None:
        telemetry = self._kube.telemetry
        if self._shown:
            telemetry.metrics.leader.labels(telemetry.service).set(1 if leading else 0)


async def _end(task: asyncio.Future[None]) -> None:
    """Cancel a task and wait for its end; log an error of its shutdown."""
    ended_before = task.done()
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None and not ended_before:
        log.warning("task failed while stopping", exc_info=error)
