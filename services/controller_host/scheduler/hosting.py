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
from controller_host.domain.maxima import ABOVE_MAXIMUM, Acceptance, Maxima
from controller_host.domain.residents import Residents
from controller_host.domain.views import INVALID_SPEC, ControllerView, Wanted, read_spec
from controller_host.host_calls.calling import Calling, Calls
from controller_host.module.fetching import Fetching, Question
from controller_host.module.loading import EngineUnavailable
from controller_host.module.preparing import NotAccepted, Preparing
from controller_host.scheduler.hosted import Hosted, Trouble
from controller_host.scheduler.lifecycle import GuestLifecycle
from controller_host.scheduler.memory import Memory
from controller_host.scheduler.outcomes import Outcomes, no_room
from controller_host.scheduler.starting import Parts
from controller_host.scheduler.turns import Places
from controller_host.state.progress import NotWritten
from controller_host.watches.news import News
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
    news: News
    outcomes: Outcomes
    pool: Executor
    residents: Residents
    views: Mapping[str, ControllerView]
    sources_interval: float
    wake: Callable[[str], None]
    acceptance: Acceptance = field(default_factory=lambda: Acceptance(Maxima()))
    places: Places[str] = field(default_factory=lambda: Places(PLACES))
    hosted: dict[str, Hosted] = field(default_factory=dict)
    closing: bool = False

    def __post_init__(self) -> None:
        self.fetching = Fetching(self.preparing, self.wake, self.parts.timings.sources.end)
        self.memory = Memory(self.hosted, self.residents, self.parts.room, self.outcomes, self.pool, self.wake)

    def on_change(self, controller: str, key: ObjectKey) -> None:
        """Handle a created, changed or deleted object; a version that the guest has processed is ignored."""
        one = self.hosted.get(controller)
        if one is None or not one.listed:
            return  # all keys are compared after the preparation
        if self.news.is_news(one, key):
            one.agenda.changed(key, time.monotonic())
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
        one = self.hosted.get(key)
        if one is not None and (view is None or view.uid != one.view.uid):
            await self._forget(one)
            one = None
        if view is None:
            self._wake_all(self.places.drop(key.partition("/")[0], key))
            return None
        if one is None:
            one = self.hosted[key] = self._begin(view)
        if not self.places.enter(view.namespace, key):
            await self.memory.give_way(one)
            return None
        one.busy = True
        try:
            wait = await self._turn(one, view)
        except Exception:
            await self.memory.take_back(one)
            raise
        else:
            await self.memory.take_back(one)
            return wait
        finally:
            one.busy = False
            self._wake_all(self.places.leave(view.namespace))
            if not self.closing:
                self.memory.count(one)
                # A short fetch is not reported.
                if one.fetching is None or self._untold(one, time.monotonic()) is None:
                    self.outcomes.told.changed(one)

    async def close(self, seconds: float) -> None:
        """Suspend all guests in memory within ``seconds``; calls still in progress after half of it are ended."""
        until = time.monotonic() + seconds
        self.closing = self.outcomes.closing = True
        self.fetching.close()
        while any(one.busy for one in self.hosted.values()) and time.monotonic() < until - seconds / 2:  # noqa: ASYNC110 - of many
            await asyncio.sleep(self.parts.timings.turns.poll)
        self.calling.stop()
        for one in self.hosted.values():
            one.life.interrupt()
        lives = [one.life for one in self.hosted.values() if one.busy or one.life.instance is not None]
        work = [asyncio.ensure_future(self.memory.in_pool(life.suspend)) for life in lives]
        if work:
            _, late = await asyncio.wait(work, timeout=max(0.1, until - time.monotonic()))
            if late:
                _log.warning("controllers not suspended before the timeout, they start cold", controllers=len(late))
        if awake := sum(1 for one in self.hosted.values() if one.life.instance is not None and not one.busy):
            _log.warning(
                "controllers not suspended because the disk is not writable, they start cold", controllers=awake
            )

    def end(self) -> None:
        """End all calls in progress and reject their requests, at the end of the leadership term."""
        self.closing = self.outcomes.closing = True
        self.fetching.close()
        self.calling.stop()
        for one in self.hosted.values():
            one.life.interrupt()

    def _untold(self, one: Hosted, now: float) -> float | None:
        """Return the seconds until the fetch of its module is reported; None: now."""
        return one.untold(now, self.parts.timings.turns.fetching)

    def _wake_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.wake(key)

    def _begin(self, view: ControllerView) -> Hosted:
        account = account_of(view)
        return Hosted(view, account, GuestLifecycle(self.parts, view.key, view.uid, Calls(self.calling, account, 0)))

    async def _forget(self, one: Hosted) -> None:
        self.fetching.drop(one.key)
        self.news.watches.drop(one.key)
        self.residents.gone(one.key)
        self.hosted.pop(one.key, None)
        self._wake_all(self.acceptance.drop(one.view.namespace, one.key))
        await self.memory.in_pool(one.life.forget)
        self.outcomes.told.gone(one)

    async def _turn(self, one: Hosted, view: ControllerView) -> float | None:
        now = time.monotonic()
        if (one.wanted is None or one.view != view) and not self._read(one, view, now):
            await self.memory.suspend(one)
            return None
        one.view = view
        wanted = one.wanted
        assert wanted is not None  # set by _read
        if wanted.paused or view.deleting:
            await self.memory.suspend(one)
            return None if one.life.instance is None else self.parts.room.again(one.not_to_disk_before)
        if now < one.not_before:
            return one.not_before - now
        if one.no_room and self.parts.room.refuses and not self.residents.fits(one.no_room):
            return self.outcomes.wait(one)
        try:
            if not await self._prepare(one, now):
                return self._untold(one, now)
            return await self._serve(one)
        except NotAccepted as refused:
            one.refused = Trouble(refused.reason, refused.message)
            return self.outcomes.wait(one)
        except EngineUnavailable as error:
            return self.outcomes.without_engine(one, error)
        except NotWritten as error:
            self.parts.room.refused(error)
            return self.outcomes.without_disk(one, self.parts.room, "the state of its former version cannot be saved")

    def _read(self, one: Hosted, view: ControllerView, now: float) -> bool:
        """Apply a new spec, and reset the failures of the former one; return whether the spec is valid."""
        self.fetching.drop(one.key)
        one.failures, one.not_before, one.ready, one.fetching = 0, 0.0, False, None
        one.agenda.forgive(now)
        one.view = view
        try:
            one.wanted, trouble = read_spec(view), None
        except ValueError as error:
            one.wanted, trouble = None, Trouble(INVALID_SPEC, str(error))
        trouble = trouble or self._above_maximum(one)
        if one.wanted is None or trouble is not None:
            one.wanted, one.refused = None, trouble
            self.news.watches.drop(one.key)
            return False
        account = account_of(view)
        if account != one.account:
            one.account = account
            one.life.calls.become(account)
        one.bucket = TokenBucket(one.wanted.bounds.calls_per_second)
        one.life.calls.limit(one.wanted.bounds.host_calls_per_second)
        self.news.watches.want(one.key, view.namespace, one.wanted.watches, self.on_change)
        one.listed = False
        if not one.unfit:
            one.refused = None  # it applied to the former spec; a paused spec is not evaluated
        return True

    def _above_maximum(self, one: Hosted) -> Trouble | None:
        """Return the problem if the spec exceeds a maximum; otherwise reserve its pinned memory."""
        self._wake_all(self.acceptance.drop(one.view.namespace, one.key))
        message = "" if one.wanted is None else self.acceptance.claim(one.view.namespace, one.key, one.wanted)
        return Trouble(ABOVE_MAXIMUM, message) if message else None

    async def _prepare(self, one: Hosted, now: float) -> bool:
        """Prepare the module and the input of ``init`` from the current state of the referenced objects.

        Returns whether they are prepared; if not, the controller is woken when the preparation ends.
        """
        wanted = one.wanted
        assert wanted is not None
        due = one.look_at is not None and now >= one.look_at
        if not one.ready or due:
            since, one.fetching = one.fetching, None
            found = self.fetching.take(one.key, Question(one.view, one.account.user, one.fetch, wanted))
            if found is None:
                one.fetching = now if since is None else since
                return one.ready
            prepared, module = found
            one.module = module.as_found(one.module)
            one.fetch = False
            if await self.memory.in_pool(one.life.adopt, prepared):
                one.listed = False
            one.ready = True
            self.outcomes.engine_found(one)
            if one.module.sha256 != one.unfit:
                one.refused = None
            one.look_at = now + self.sources_interval if any(wanted.refs) or not wanted.is_fixed else None
        return True

    async def _serve(self, one: Hosted) -> float | None:
        """Call the guest for due keys, start it if it has not run yet, suspend it if it is idle."""
        now, life, wanted = time.monotonic(), one.life, one.wanted
        assert wanted is not None
        self.news.list_if_whole(one)
        starts = life.instance is None and not life.snapshot
        deliveries = await self.news.deliverable(one, now)
        if deliveries or starts:
            try:
                served = await self.memory.in_pool(life.serve, deliveries, partial(self._leaves, one, wanted))
            except BaseException:
                # For example a full disk. The result is unknown: deliver the keys again.
                one.agenda.put_back([delivery.turn for delivery in deliveries])
                raise
            self.outcomes.take(one, served)
            if served.to_disk is not None:
                self.memory.suspended(one, taken=served.to_disk)
            if served.unwritten:
                one.stopped = no_room(self.parts.room, "the controller is not called for new objects")
            self.news.look_again(one, deliveries)
            if served.cold and served.fault is None and one.ready:
                self.news.list_if_whole(one)  # in this turn: otherwise the guest stays in memory until its next turn
        wait = self._until_next(one)
        idle = (wait is None or wait > 0) and time.monotonic() - one.used_at >= (wanted.suspend_after or 0.0)
        if not one.pinned and idle:
            await self.memory.suspend(one)
        return self._next(one, wait)

    def _leaves(self, one: Hosted, wanted: Wanted) -> bool:
        """Return whether a guest without further keys is suspended immediately; called in its thread.

        A key that was added to its agenda keeps it in memory; a later key wakes it.
        """
        return wanted.suspend_after == 0 and not len(one.agenda) and self.memory.may_suspend(one)

    def _until_next(self, one: Hosted) -> float | None:
        """Return the seconds until the next key of a controller is due."""
        now = time.monotonic()
        if now < one.not_before:
            return one.not_before - now
        if not one.ready:
            return 0.0
        if not one.listed:
            # A notification comes when its watches are complete: polling would not scale to ten thousand controllers.
            return 0.0 if self.news.whole(one) else None
        wait = one.agenda.wait(now)
        return wait if wait is None else max(wait, one.bucket.wait(now), one.held_until - now)

    def _next(self, one: Hosted, wait: float | None) -> float | None:
        now, waits = time.monotonic(), [wait]
        if one.life.instance is not None and one.wanted is not None and one.wanted.suspend_after is not None:
            left = one.used_at + one.wanted.suspend_after - now
            waits.append(left if left > 0 else self.parts.room.again(one.not_to_disk_before))
        elif one.life.marks.owed:
            waits.append(self.parts.room.again())
        if one.look_at is not None and one.fetching is None:
            waits.append(max(0.0, one.look_at - now))
        return min((one for one in waits if one is not None), default=None)
