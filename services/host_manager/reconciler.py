"""Reconciles a host group: gather, decide, apply, publish.

In: keys of host groups. Out: their children and status by ``apply``, events. Called by the queue of ``app``. Invariant:
a permanent rejection by the API server is reported on the host group before the retry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from host_manager.apply import Effects
from host_manager.domain import decide as deciding
from host_manager.domain.inputs import Problem
from host_manager.domain.snapshot import Snapshot
from host_manager.domain.status import refused_by
from host_manager.finalizer_release import FinalizerRelease
from host_manager.gather import Cache
from host_manager.lattice_status import due_in, pods_without_heartbeat
from trellis.bus.bus import Bus, BusUnavailable
from trellis.events.hosts import HostsReady, HostsRemoved
from trellis.kube.errors import Conflict, Invalid, KubeError, TooManyRequests, Unauthorized, Unavailable
from trellis.kube.permissions import MissingPermissions
from trellis.kube.refusals import WRITE_REFUSED, cause_of, is_refused
from trellis.telemetry import TraceContext, TraceSpans

_PASSING: Final = (Conflict, Unavailable, TooManyRequests, Unauthorized)
"""Errors that resolve without a change of the host group, and are not reported on it."""


@dataclass(frozen=True, slots=True)
class Reconciler:
    """One reconcile of a host group: gather, decide, apply.

    While groups without a reconcile wait, a new group is created in two steps: first the children its hosts need.
    """

    cache: Cache
    effects: Effects
    bus: Bus
    traces: TraceSpans[str]
    knows: Callable[[str], bool]
    permissions: MissingPermissions
    finalizer_release: FinalizerRelease

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Reconcile one host group; raises KubeError, on which the queue retries."""
        if not self.knows(key):
            self.cache.waiting.discard(key)
            return self.cache.timings.unknown
        try:
            again = await self._run(key, trace)
        except BaseException as error:
            self.cache.invalidate(key)
            self.permissions.failed(key, error)
            raise
        self.permissions.worked(key)
        return again

    async def _run(self, key: str, trace: TraceContext | None) -> float | None:
        if self.cache.gives_way(key):
            return self.cache.timings.give_way
        changes = self.cache.changes.of(key)
        snapshot = await self.cache.snapshot(key)
        if snapshot is None:
            return None
        if (wait := await self._stays(snapshot)) is not None:
            return wait
        if not snapshot.glance:
            # Any change from now on requires another full read.
            self.cache.knows(snapshot)
        actions = deciding.decide(snapshot)
        if actions:
            done = [type(action).__name__ for action in actions]
            attributes = {"trellis.group": key, "trellis.actions": done}
            with self.traces.span(key, f"reconcile hosts {key}", trace, attributes):
                actions, again = await self._act(key, snapshot, actions)
                if again is not None:
                    return again
        self.cache.changes.looked_at(key, changes, deciding.completed_changes(snapshot))
        status = next((item.status for item in actions if isinstance(item, deciding.WriteStatus)), snapshot.status)
        if refused_by(status):
            self.cache.invalidate(key)  # a full read does not contain rejections
        if status.get("hosts") and not pods_without_heartbeat(snapshot) and due_in(snapshot) is None:
            self.cache.lattices.recycling.reset(key)
        again = await self._publish_state(snapshot, status, deleted=False)
        if again is not None:
            return again
        soon = self.cache.look_in(key)
        # The first status may have become due during the writes.
        first = self.cache.early_for(key) or 0.0 if snapshot.early and not status else None
        undecided = self.cache.timings.undecided if self.cache.changes.of(key) else None
        retry = self.cache.retries.left(key)
        looks = (self.cache.sources_interval if soon is None else soon, due_in(snapshot), first, undecided, retry)
        return min(look for look in looks if look is not None) + self.cache.timings.late

    async def _stays(self, snapshot: Snapshot) -> float | None:
        """Return how long a deleted host group keeps its finalizer; None if it can be removed.

        If the circuit breaker pauses the deletion, the status reports it.
        """
        head = snapshot.head
        if not head.deleting or not deciding.decide(snapshot):
            return None
        wait = await self.finalizer_release.wait(head.key, snapshot.pods)
        if wait is None:
            return None
        if wait.paused:
            await self.effects.apply(head.key, deciding.decide(replace(snapshot, deletion_paused=True)))
        return wait.seconds

    async def _act(
        self, key: str, snapshot: Snapshot, actions: list[deciding.Action]
    ) -> tuple[list[deciding.Action], float | None]:
        """Apply the actions; return the applied ones, and the seconds until the next reconcile.

        A rejection by the API server is reported on the host group before the retry.
        """
        try:
            if deciding.may_be_refused(snapshot):
                actions, refused = await self.effects.tried(actions)
                if refused:
                    actions = deciding.decide(replace(snapshot, refused=refused))
            # The removal is published before the finalizer is removed.
            again = await self._publish_state(snapshot, snapshot.status, deleted=True)
            half = deciding.first_half(actions) if snapshot.fresh and self.cache.waiting else actions
            await self.effects.apply(key, half)
            if len(half) < len(actions):
                self.cache.half_created(snapshot)
                return half, self.cache.timings.give_way
        except KubeError as error:
            if isinstance(error, _PASSING) and not is_refused(error):
                raise
            self.cache.invalidate(key)
            if snapshot.fresh and isinstance(error, Invalid):
                # An existing object is in the way, which the reads for a new group do not include: read all of them.
                self.cache.note_children(key)
                return actions, 0.0
            now = await self.cache.snapshot(key)
            if now is not None:
                await self.effects.apply(key, deciding.report(now, Problem(WRITE_REFUSED, cause_of(error))))
            raise
        return actions, again

    async def _publish_state(self, snapshot: Snapshot, status: Mapping[str, Any], *, deleted: bool) -> float | None:
        """Publish the state of a host group; return seconds until the retry if NATS is unreachable."""
        head, published = snapshot.head, self.cache.published.groups
        if snapshot.other is not None or snapshot.group is None or deleted != head.deleting:
            return None
        about = {
            "namespace": head.namespace,
            "name": head.name,
            "uid": head.uid,
            "lattice": snapshot.group.spec.lattice,
        }
        event: HostsReady | HostsRemoved
        if head.deleting:
            dedup_id, event = f"{head.uid}.removed", HostsRemoved(**about)
        else:
            conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
            own = status.get("observedGeneration") == head.generation
            done = (conditions.get("Available", {}).get("status"), conditions.get("Progressing", {}).get("status"))
            if not own or done != ("True", "False"):
                published.pop(head.key, None)  # it is published once more when it is ready again
                return None
            dedup_id = f"{head.uid}.{head.generation}.ready"
            event = HostsReady(**about, generation=head.generation, hosts=status.get("readyReplicas") or 0)
        if published.get(head.key) == dedup_id:
            self.traces.end(head.key)
            return None
        try:
            with self.traces.follow(head.key):
                await self.bus.publish(event, dedup=f"{head.uid}.{head.resource_version}.{event.event_name}")
        except BusUnavailable:
            return None if head.deleting else self.cache.timings.publish  # an outage does not block a deletion
        published[head.key] = dedup_id
        self.traces.end(head.key)
        return None
