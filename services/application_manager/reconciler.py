"""One reconcile of a key: gather, decide, apply, report; reconciles continue until both sides are in sync.

In: keys. Out: writes on either side, a status, events. Called by the queue of ``app``. Every step is recorded in
``cache`` as a transition of ``Progress``; its module has a diagram of the states. Invariant: a rejection by wadm is
reported with its message.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from application_manager.apply import Effects, ManifestAltered, Outdated
from application_manager.cache import Cache
from application_manager.domain import decide as deciding
from application_manager.domain.actions import Decision, Lost, Record, Refused, asks
from application_manager.domain.conditions import Json, Seen, condition_events, patch_of, status_of
from application_manager.domain.progress import SETTLED, Progress
from application_manager.domain.published_events import Due, Identity, events_of
from application_manager.domain.sides import Side
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import ApplicationView, Key
from application_manager.gather import Gather
from application_manager.timings import Timings
from trellis.bus.bus import Bus, BusUnavailable
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.permissions import MissingPermissions
from trellis.kube.refusals import WRITE_REFUSED, cause_of, is_refused, is_terminating
from trellis.lattice.connection.lattice_connection import NatsUnavailableError, TooLargeError
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import Refusal, WadmRefusedError
from trellis.lattice.domain.subjects import SubjectError
from trellis.telemetry import TraceContext, TraceSpans, get_logger

_NO_ANSWER: Final = (NatsUnavailableError, LatticeDataError)
_REFUSALS: Final = (WadmRefusedError, SubjectError, TooLargeError)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciles one application between Kubernetes and wadm."""

    gather: Gather
    cache: Cache
    effects: Effects
    bus: Bus
    traces: TraceSpans[Key]
    permissions: MissingPermissions
    timings: Timings = Timings()

    async def run(self, key: Key, trace: TraceContext | None) -> float | None:
        """Reconcile one application; return seconds until the next reconcile.

        Raises:
            KubeError: the queue retries.
        """
        with self.permissions.noted(str(key)):
            return await self._run(key, trace)

    async def _run(self, key: Key, trace: TraceContext | None) -> float | None:
        snapshot = await self.gather.snapshot(key)
        self.cache.advance(key, lambda _: snapshot.progress)
        decision = deciding.decide(snapshot)
        for view, about in decision.duplicates:
            await self._duplicate(snapshot, view, about)
        if decision.without_status:
            await self.effects.apply(snapshot, decision.actions)
            return decision.again
        again = await self._carry_out(snapshot, decision, trace)
        return _soonest(again, self.cache.progress(key).listing_due(time.monotonic(), self.timings))

    async def _duplicate(self, snapshot: Snapshot, view: ApplicationView, decision: Decision) -> None:
        """Apply the decision about a newer object that names the same application."""
        snapshot = replace(snapshot, view=view, object=view.object, reason="", progress=SETTLED)
        if decision.without_status:
            await self.effects.apply(snapshot, decision.actions)
        else:
            await self._write(Seen(view, snapshot, decision))

    async def _carry_out(self, snapshot: Snapshot, decision: Decision, trace: TraceContext | None) -> float | None:
        """Apply a decision, and report the result."""
        key, view, actions = snapshot.key, snapshot.view, decision.actions
        deletion = next(filter(deciding.deletes, actions), None)
        if deletion is None and decision.waits is None and view is not None:
            self.effects.breaker.withdraw(deciding.APPLICATIONS, view.uid)
        self.cache.advance(key, lambda progress: progress.decided(snapshot.object, decision))
        if decision.refused is not None or not actions or isinstance(actions[0], Record):
            again = _soonest(await self._report(snapshot, decision), decision.again)
            if again is None and decision.waits is None:
                self.traces.end(key)  # both sides are equal, and all events are published
            return again
        if deletion is not None and view is not None:
            wait = await self.effects.admit(view)
            if wait is not None:
                return _soonest(await self._report(snapshot, deciding.paused(deletion)), wait)
        done = [type(action).__name__ for action in actions]
        with self.traces.span(
            key, f"reconcile application {key}", trace, {"trellis.application": str(key), "trellis.actions": done}
        ):
            return await self._act(snapshot, decision)

    async def _act(self, snapshot: Snapshot, decision: Decision) -> float | None:
        try:
            await self.effects.apply(snapshot, decision.actions)
        except Outdated:
            return self.timings.soon
        except _NO_ANSWER as error:
            without = deciding.unavailable(self._with_own_writes(snapshot), str(error))
            return _soonest(await self._report(*without), self.timings.unavailable)
        except _REFUSALS as error:
            refused = self._refuse(snapshot, error)
            wait = await self._report(self._with_own_writes(snapshot), replace(decision, refused=refused))
            return _soonest(wait, refused.again - time.monotonic())
        except (KubeError, ManifestAltered) as error:
            if snapshot.view is None and _is_nowhere(error):
                _log.info("application of wadm cannot be reflected", application=str(snapshot.key), reason=str(error))
                return self.timings.nowhere
            await self._refused_by_kubernetes(self._with_own_writes(snapshot), error)
            raise
        return self.timings.look if asks(decision.actions) else None

    def _with_own_writes(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the object after the writes of this reconcile, as the base of its status.

        An object whose spec changed in the meantime is left to the next reconcile.
        """
        former = snapshot.view
        view = self.cache.applications.get(former.key) if former is not None else None
        if former is None or view is None or (view.uid, view.generation) != (former.uid, former.generation):
            return snapshot
        return replace(snapshot, view=view)

    async def _refused_by_kubernetes(self, snapshot: Snapshot, error: KubeError | ManifestAltered) -> None:
        """Report a write that the API server rejects, on the Application or on a host group of its home namespace."""
        if isinstance(error, KubeError) and not is_refused(error):
            return
        if snapshot.view is None:
            message = f"application {snapshot.key.name} from wadm: {error}"
            await self.effects.warn_home(snapshot, WRITE_REFUSED, message)
            return
        cause = cause_of(error) if isinstance(error, KubeError) else str(error)
        await self.effects.event(snapshot.view, WRITE_REFUSED, cause)
        with contextlib.suppress(KubeError):  # the status may be refused too
            await self._report(snapshot, deciding.refused_by_kubernetes(cause))

    def _refuse(self, snapshot: Snapshot, error: Exception) -> Refused:
        """Record a rejection by wadm or NATS."""
        refusal = Refusal.TOO_LARGE if isinstance(error, TooLargeError) else Refusal.REJECTED
        if isinstance(error, WadmRefusedError):
            refusal = error.refusal
        answer = (snapshot.object, refusal, str(error), time.monotonic(), self.timings)
        refused = self.cache.advance(snapshot.key, lambda progress: progress.refused_as(*answer)).refused
        assert refused is not None  # set by refused_as
        key = str(snapshot.key)
        _log.warning("application rejected", application=key, reason=refusal.value, message=str(error))
        return refused

    async def _report(self, snapshot: Snapshot, decision: Decision) -> float | None:
        """Write the status if it differs, and publish events; return seconds until the next attempt, None if done."""
        key, view = snapshot.key, snapshot.view
        if view is None:
            if snapshot.model is None:
                self.cache.deleted(key)
            return await self._publish_deleted(key)
        if view.object.deleting and not view.object.finalizer:
            return None
        now = time.monotonic()
        progress = self.cache.advance(key, lambda progress: progress.reporting(decision, now))
        if (wait := progress.unreported(now, self.timings)) is not None:
            return wait
        refused = decision.refused
        carried_out = decision if refused is None else replace(decision, actions=())
        seen = Seen(view, replace(snapshot, progress=progress), carried_out)
        status = await self._write(seen)
        if seen.recorded is not None:
            self.cache.advance(key, Progress.recorded)
        overridden = status.get("overridden")
        due = events_of(
            _identity(snapshot, view),
            view.object,
            carried_out,
            Lost(Side(overridden["side"]), overridden["version"]) if overridden else None,
            (refused.refusal.value, refused.message) if refused is not None else None,
        )
        return await self._publish(key, self.cache.published.due(view.key, due))

    async def _write(self, seen: Seen) -> Json:
        key, former = seen.snapshot.key, seen.view.status_fields()
        status = status_of(seen)
        if patch := patch_of(former, status):
            with self.traces.span(key, f"update status {key}", None, {"trellis.application": str(key)}):
                await self.effects.status(key, seen.view, patch)
                for reason, message in condition_events(seen, status):
                    await self.effects.event(seen.view, reason, message)
        return status

    async def _publish_deleted(self, key: Key) -> float | None:
        """Publish the deletion of every deleted object of this application."""
        published = self.cache.published
        for place in published.objects_of(key.name):
            wait = (
                None if place in self.cache.applications else await self._publish(key, published.deletion_events(place))
            )
            if wait is not None:
                return wait
        return None

    async def _publish(self, key: Key, due: Iterable[Due]) -> float | None:
        try:
            with self.traces.follow(key):
                for item in due:
                    await self.bus.publish(item.event, dedup=item.dedup)
                    self.cache.published.note(item.event)
        except BusUnavailable:
            return self.timings.publish
        return None


def _identity(snapshot: Snapshot, view: ApplicationView) -> Identity:
    lattice = lattice_name(snapshot.key.lattice_id) or view.shown
    return Identity(
        view.namespace, view.name, view.uid, view.resource_version, view.generation, lattice, view.application
    )


def _is_nowhere(error: Exception) -> bool:
    """Return whether an Application has no place: its namespace is deleted or terminating, or the CRD is missing."""
    return isinstance(error, NotFound) or (isinstance(error, KubeError) and is_terminating(error))


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)
