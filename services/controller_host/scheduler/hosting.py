"""Reconciler of controllers: one run is a turn: prepare, start, call for some keys, suspend.

In: keys of controllers from the queue, and changes of watched objects. Out: calls of guests, in threads of a pool;
reports. Called by ``app``. Invariants: one run per controller at a time; a turn is limited to some calls or
milliseconds, so that controllers do not wait for the full list of another one; the controllers of a namespace have at
most as many concurrent turns as remain free; an object is delivered only if an access review allows it and the cache is
complete, so that no existing object is reported as deleted; a controller that fails at each start backs off as a whole.
Source: ADR 51 and 57.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from controller_host.domain.accounts import account_of
from controller_host.domain.keys import ObjectKey
from controller_host.domain.maximum_limits import ABOVE_MAXIMUM, Acceptance, MaximumLimits
from controller_host.domain.residents import Residents
from controller_host.domain.views import INVALID_SPEC, ControllerView, Wanted, read_spec
from controller_host.host_calls.calling import Calling, Calls
from controller_host.module.fetching import Preparations, Question
from controller_host.module.loading import EngineUnavailable
from controller_host.module.preparing import NotAccepted, Preparing
from controller_host.scheduler.hosted import Hosted, Trouble
from controller_host.scheduler.lifecycle import GuestLifecycle
from controller_host.scheduler.memory import Memory
from controller_host.scheduler.outcomes import Outcomes, disk_full
from controller_host.scheduler.starting import Parts
from controller_host.scheduler.turns import Places
from controller_host.state.progress import NotWritten
from controller_host.watches.delivery_selection import DeliverySelection
from trellis.limits.token_bucket import TokenBucket
from trellis.telemetry import TraceContext, get_logger

PLACES: Final = 128
"""Default number of concurrent turns."""

_log = get_logger(__name__)


@dataclass(eq=False)
class Hosting:
    """All controllers. ``wake``: adds a controller to the queue."""

    parts: Parts
    calling: Calling
    preparing: Preparing
    selection: DeliverySelection
    outcomes: Outcomes
    pool: Executor
    residents: Residents
    views: Mapping[str, ControllerView]
    sources_interval: float
    wake: Callable[[str], None]
    acceptance: Acceptance = field(default_factory=lambda: Acceptance(MaximumLimits()))
    places: Places[str] = field(default_factory=lambda: Places(PLACES))
    hosted: dict[str, Hosted] = field(default_factory=dict)
    closing: bool = False

    def __post_init__(self) -> None:
        self.fetching = Preparations(self.preparing, self.wake, self.parts.timings.sources.end)
        self.memory = Memory(self.hosted, self.residents, self.parts.disk_space, self.outcomes, self.pool, self.wake)

    def on_change(self, controller: str, key: ObjectKey) -> None:
        """Handle a created, changed or deleted object; a version that the guest has processed is ignored."""
        item = self.hosted.get(controller)
        if item is None or not item.listed:
            return  # all keys are compared after the preparation
        if self.selection.is_changed(item, key):
            item.work_queue.changed(key, time.monotonic())
            self.wake(controller)

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Run the turn of a controller; return the seconds until its next turn, None if nothing is due.

        Raises:
            KubeError: the API server did not answer; the queue retries.
        """
        del trace
        if self.closing:
            return None
        view = self.views.get(key)
        item = self.hosted.get(key)
        if item is not None and (view is None or view.uid != item.view.uid):
            await self._forget(item)
            item = None
        if view is None:
            self._wake_all(self.places.drop(key.partition("/")[0], key))
            return None
        if item is None:
            item = self.hosted[key] = self._begin(view)
        if not self.places.enter(view.namespace, key):
            await self.memory.give_way(item)
            return None
        item.busy = True
        try:
            wait = await self._turn(item, view)
        except Exception:
            await self.memory.reclaim(item)
            raise
        else:
            await self.memory.reclaim(item)
            return wait
        finally:
            item.busy = False
            self._wake_all(self.places.leave(view.namespace))
            if not self.closing:
                self.memory.count(item)
                # A short fetch is not reported.
                if item.fetching is None or self._unreported(item, time.monotonic()) is None:
                    self.outcomes.callbacks.changed(item)

    async def close(self, seconds: float) -> None:
        """Suspend all guests in memory within ``seconds``; calls still in progress after half of it are ended."""
        until = time.monotonic() + seconds
        self.closing = self.outcomes.closing = True
        self.fetching.close()
        while any(item.busy for item in self.hosted.values()) and time.monotonic() < until - seconds / 2:  # noqa: ASYNC110 - of many
            await asyncio.sleep(self.parts.timings.turns.poll)
        self.calling.stop()
        for item in self.hosted.values():
            item.lifecycle.interrupt()
        lifecycles = [
            item.lifecycle for item in self.hosted.values() if item.busy or item.lifecycle.instance is not None
        ]
        work = [asyncio.ensure_future(self.memory.in_pool(lifecycle.suspend)) for lifecycle in lifecycles]
        if work:
            _, late = await asyncio.wait(work, timeout=max(0.1, until - time.monotonic()))
            if late:
                _log.warning("controllers not suspended before the timeout, they start cold", controllers=len(late))
        if awake := sum(1 for item in self.hosted.values() if item.lifecycle.instance is not None and not item.busy):
            _log.warning(
                "controllers not suspended because the disk is not writable, they start cold", controllers=awake
            )

    def end(self) -> None:
        """End all calls in progress and reject their requests, at the end of the leadership term."""
        self.closing = self.outcomes.closing = True
        self.fetching.close()
        self.calling.stop()
        for item in self.hosted.values():
            item.lifecycle.interrupt()

    def _unreported(self, hosted: Hosted, now: float) -> float | None:
        """Return the seconds until the fetch of its module is reported; None: now."""
        return hosted.unreported(now, self.parts.timings.turns.fetching)

    def _wake_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.wake(key)

    def _begin(self, view: ControllerView) -> Hosted:
        account = account_of(view)
        return Hosted(view, account, GuestLifecycle(self.parts, view.key, view.uid, Calls(self.calling, account, 0)))

    async def _forget(self, hosted: Hosted) -> None:
        self.fetching.drop(hosted.key)
        self.selection.watches.drop(hosted.key)
        self.residents.remove(hosted.key)
        self.hosted.pop(hosted.key, None)
        self._wake_all(self.acceptance.drop(hosted.view.namespace, hosted.key))
        await self.memory.in_pool(hosted.lifecycle.forget)
        self.outcomes.callbacks.removed(hosted)

    async def _turn(self, hosted: Hosted, view: ControllerView) -> float | None:
        now = time.monotonic()
        if (hosted.wanted is None or hosted.view != view) and not self._read(hosted, view, now):
            await self.memory.suspend(hosted)
            return None
        hosted.view = view
        wanted = hosted.wanted
        assert wanted is not None  # set by _read
        if wanted.paused or view.deleting:
            await self.memory.suspend(hosted)
            return None if hosted.lifecycle.instance is None else self.parts.disk_space.again(hosted.not_to_disk_before)
        if now < hosted.not_before:
            return hosted.not_before - now
        if hosted.disk_full and self.parts.disk_space.refuses and not self.residents.fits(hosted.disk_full):
            return self.outcomes.wait(hosted)
        try:
            if not await self._prepare(hosted, now):
                return self._unreported(hosted, now)
            return await self._serve(hosted)
        except NotAccepted as refused:
            hosted.refused = Trouble(refused.reason, refused.message)
            return self.outcomes.wait(hosted)
        except EngineUnavailable as error:
            return self.outcomes.without_engine(hosted, error)
        except NotWritten as error:
            self.parts.disk_space.refused(error)
            return self.outcomes.without_disk(
                hosted, self.parts.disk_space, "the state of its former version cannot be saved"
            )

    def _read(self, hosted: Hosted, view: ControllerView, now: float) -> bool:
        """Apply a new spec, and reset the failures of the former one; return whether the spec is valid."""
        self.fetching.drop(hosted.key)
        hosted.failures, hosted.not_before, hosted.ready, hosted.fetching = 0, 0.0, False, None
        hosted.work_queue.retry_now(now)
        hosted.view = view
        try:
            hosted.wanted, trouble = read_spec(view), None
        except ValueError as error:
            hosted.wanted, trouble = None, Trouble(INVALID_SPEC, str(error))
        trouble = trouble or self._above_maximum(hosted)
        if hosted.wanted is None or trouble is not None:
            hosted.wanted, hosted.refused = None, trouble
            self.selection.watches.drop(hosted.key)
            return False
        account = account_of(view)
        if account != hosted.account:
            hosted.account = account
            hosted.lifecycle.calls.become(account)
        hosted.bucket = TokenBucket(hosted.wanted.bounds.calls_per_second)
        hosted.lifecycle.calls.limit(hosted.wanted.bounds.host_calls_per_second)
        self.selection.watches.want(hosted.key, hosted.wanted.watches, self.on_change)
        hosted.listed = False
        if not hosted.unfit:
            hosted.refused = None  # it applied to the former spec; a paused spec is not evaluated
        return True

    def _above_maximum(self, hosted: Hosted) -> Trouble | None:
        """Return the problem if the spec exceeds a maximum; otherwise reserve its pinned memory."""
        self._wake_all(self.acceptance.drop(hosted.view.namespace, hosted.key))
        message = (
            "" if hosted.wanted is None else self.acceptance.claim(hosted.view.namespace, hosted.key, hosted.wanted)
        )
        return Trouble(ABOVE_MAXIMUM, message) if message else None

    async def _prepare(self, hosted: Hosted, now: float) -> bool:
        """Prepare the module and the input of ``init`` from the current state of the referenced objects.

        Returns whether they are prepared; if not, the controller is woken when the preparation ends.
        """
        wanted = hosted.wanted
        assert wanted is not None
        due = hosted.look_at is not None and now >= hosted.look_at
        if not hosted.ready or due:
            since, hosted.fetching = hosted.fetching, None
            question = Question(hosted.view, hosted.account.user, hosted.fetch, wanted, repeated=hosted.ready)
            found = self.fetching.take(hosted.key, question)
            if found is None:
                hosted.fetching = now if since is None else since
                return hosted.ready
            prepared, module = found
            hosted.module = module.as_found(hosted.module)
            hosted.fetch = False
            if await self.memory.in_pool(hosted.lifecycle.adopt, prepared):
                hosted.listed = False
            hosted.ready = True
            self.outcomes.engine_found(hosted)
            if hosted.module.sha256 != hosted.unfit:
                if hosted.refused is not None and question.repeated:
                    hosted.failures = 0  # only its source failed, not the guest
                hosted.refused = None
            hosted.look_at = now + self.sources_interval if any(wanted.refs) or not wanted.is_fixed else None
        return True

    async def _serve(self, hosted: Hosted) -> float | None:
        """Call the guest for due keys, start it if it has not run yet, suspend it if it is idle."""
        now, lifecycle, wanted = time.monotonic(), hosted.lifecycle, hosted.wanted
        assert wanted is not None
        self.selection.list_if_whole(hosted)
        starts = lifecycle.instance is None and not lifecycle.snapshot
        deliveries = await self.selection.deliverable(hosted, now)
        if deliveries or starts:
            try:
                served = await self.memory.in_pool(lifecycle.serve, deliveries, partial(self._leaves, hosted, wanted))
            except BaseException:
                # For example a full disk. The result is unknown: deliver the keys again.
                hosted.work_queue.put_back([delivery.turn for delivery in deliveries])
                raise
            self.outcomes.take(hosted, served)
            if served.to_disk is not None:
                self.memory.suspended(hosted, written=served.to_disk)
            if served.unwritten:
                hosted.stopped = disk_full(self.parts.disk_space, "the controller is not called for new objects")
            self.selection.look_again(hosted, deliveries)
            if served.cold and served.fault is None and hosted.ready:
                self.selection.list_if_whole(hosted)  # now: otherwise the guest stays in memory until its next turn
        wait = self._until_next(hosted)
        idle = (wait is None or wait > 0) and time.monotonic() - hosted.used_at >= (wanted.suspend_after or 0.0)
        if not hosted.pinned and idle:
            await self.memory.suspend(hosted)
        return self._next(hosted, wait)

    def _leaves(self, hosted: Hosted, wanted: Wanted) -> bool:
        """Return whether a guest without further keys is suspended immediately; called in its thread.

        A key that was added to its work queue keeps it in memory; a later key wakes it.
        """
        return wanted.suspend_after == 0 and not len(hosted.work_queue) and self.memory.may_suspend(hosted)

    def _until_next(self, hosted: Hosted) -> float | None:
        """Return the seconds until the next key of a controller is due."""
        now = time.monotonic()
        if now < hosted.not_before:
            return hosted.not_before - now
        if not hosted.ready:
            return 0.0
        if not hosted.listed:
            # A notification comes when its watches are complete: polling would not scale to ten thousand controllers.
            return 0.0 if self.selection.whole(hosted) else None
        wait = hosted.work_queue.wait(now)
        return wait if wait is None else max(wait, hosted.bucket.wait(now), hosted.next_review_at - now)

    def _next(self, hosted: Hosted, wait: float | None) -> float | None:
        now, waits = time.monotonic(), [wait]
        if (
            hosted.lifecycle.instance is not None
            and hosted.wanted is not None
            and hosted.wanted.suspend_after is not None
        ):
            left = hosted.used_at + hosted.wanted.suspend_after - now
            waits.append(left if left > 0 else self.parts.disk_space.again(hosted.not_to_disk_before))
        elif hosted.lifecycle.processed.owed:
            waits.append(self.parts.disk_space.again())
        if hosted.look_at is not None and hosted.fetching is None:
            waits.append(max(0.0, hosted.look_at - now))
        return min((item for item in waits if item is not None), default=None)
