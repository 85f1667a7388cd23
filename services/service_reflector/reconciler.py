"""One run of an application's key in one namespace: gather, decide, apply, publish.

In: keys of applications. Out: Services, slices and routes by ``apply``, events on the bus. Called by the queue of
``app``. Invariant: only state that the API server returned is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from service_reflector.apply import Effects
from service_reflector.domain import decide as deciding
from service_reflector.domain.actions import Action, DeleteRoute, DeleteSlice, RemoveService, Warn, WarnService
from service_reflector.domain.published_events import reflected, removed, stored
from service_reflector.domain.snapshot import Snapshot
from service_reflector.gather import Cache
from trellis.bus.bus import Bus, BusUnavailable
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.services import ServiceReflected, ServiceRemoved
from trellis.kube import refusals
from trellis.kube.errors import AlreadyExists, KubeError, NotFound
from trellis.kube.refusals import WRITE_REFUSED
from trellis.kube.resources import ENDPOINT_SLICES, HTTP_ROUTES
from trellis.telemetry import TraceContext, TraceSpans
from trellis.telemetry.health import Health

PRESERVED: Final = "ServicesPreserved"
"""Key of the readiness note about Services that wait for an answer of a lattice or for a host group."""
_SEEN_BY_WATCHES: Final = (Warn, WarnService, RemoveService, DeleteSlice, DeleteRoute)
"""Actions that change no cached state: the watch reports deletions, and the key is reconciled then."""


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciler of a key: gather, decide, apply, publish."""

    cache: Cache
    effects: Effects
    bus: Bus
    traces: TraceSpans[str]
    health: Health
    queue: KeyedQueue[str]

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Reconcile one application's Services in one namespace; return the seconds until the next run, if any.

        Raises:
            KubeError: for the queue to retry.
        """
        if self.cache.controller is not None and not self.cache.remove_finalizers:
            return None
        snapshot = await self._look(key)
        actions = deciding.decide(snapshot)
        to_remove = {action.target.uid for action in actions if isinstance(action, RemoveService)}
        for service in snapshot.services.values():
            if service.uid not in to_remove and snapshot.lattice_of(service) not in snapshot.unknown:
                self.effects.breaker.withdraw(deciding.SERVICES, service.uid)
        waits = [snapshot.look_again]
        if actions:
            attributes = {"trellis.application": key, "trellis.actions": [type(action).__name__ for action in actions]}
            with self.traces.span(key, f"reflect {key}", trace, attributes):
                waits.append(await self._act(snapshot, actions))
        if any(not isinstance(action, _SEEN_BY_WATCHES) for action in actions):
            written = self.queue.cancel_pending(key)  # the objects that the API server returned are evaluated here
            snapshot = await self._look(key)
            waits.append(snapshot.look_again)
            if written and any(_is_new(action, actions) for action in deciding.decide(snapshot)):
                self.queue.add(key)
        with self.traces.follow(key):
            waits.append(again := await self._publish_states(snapshot))
        if again is None and not to_remove and _settled(snapshot):
            self.traces.end(key)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _look(self, key: str) -> Snapshot:
        try:
            snapshot = await self.cache.snapshot(key)
        except KubeError as error:
            if is_refused(error):
                for service in self.cache.services_of(key):
                    await self.effects.report(service, None, WRITE_REFUSED, str(error))
            raise
        self.health.note(PRESERVED, self.cache.preserved_text())
        return snapshot

    async def _act(self, snapshot: Snapshot, actions: list[Any]) -> float | None:
        try:
            return await self.effects.apply(snapshot.namespace, actions)
        except KubeError as error:
            # A refusal is reported on the objects that a user inspects; the queue still retries the write.
            if is_refused(error):
                for service in snapshot.services.values():
                    await self.effects.report(service if service.application else None, None, WRITE_REFUSED, str(error))
                for claim in snapshot.claims:
                    await self.effects.report(None, claim.group, WRITE_REFUSED, str(error))
            raise

    async def _publish_states(self, snapshot: Snapshot) -> float | None:
        """Publish the state of each Service; return the seconds until the retry if NATS is unreachable."""
        cache, about = self.cache, f"{snapshot.namespace}/{snapshot.name}"
        published = cache.published.setdefault(about, {})
        services = {} if cache.remove_finalizers else deciding.reflected_services(snapshot)
        try:
            for target in services.values():
                service = cache.services.get(target.key)
                if service is None or service.application != target.application or service.deleting:
                    continue
                event = reflected(target, service)
                if published.get(target.key) != stored(event):
                    await self._publish(event, service.resource_version)
                    published[target.key] = stored(event)
            for key, former in list(published.items()):
                if key not in cache.services:
                    await self._publish(removed(former), "deleted")
                    published.pop(key, None)
        except BusUnavailable:
            return cache.timings.publish
        finally:
            if not published:
                cache.published.pop(about, None)
        return None

    async def _publish(self, event: ServiceReflected | ServiceRemoved, state: str) -> None:
        await self.bus.publish(event, dedup=f"{event.uid}.{state}.{event.event_name}")


def is_refused(error: Exception) -> bool:
    """Return whether a write was refused.

    For a Service, 409 and 404 mean that it was created or deleted in the meantime: the next run has its state. For an
    HTTPRoute they mean that its name is taken or its kind is not served; for an EndpointSlice, 409 means the former.
    """
    if isinstance(error, AlreadyExists):
        return error.kind in {HTTP_ROUTES.kind, ENDPOINT_SLICES.kind}
    if isinstance(error, NotFound):
        return error.kind == HTTP_ROUTES.kind
    return refusals.is_refused(error)


def _is_new(action: Action, done: Sequence[Action]) -> bool:
    """Return whether an action is still to be applied after those that the same run applied."""
    return not isinstance(action, Warn | WarnService) or action not in done


def _settled(snapshot: Snapshot) -> bool:
    """Return whether a trace ends here: a Service has a ready endpoint, or no Service is claimed."""
    pieces = [piece for pieces in snapshot.slices.values() for piece in pieces]
    ready = any(endpoint.get("conditions", {}).get("ready") for piece in pieces for endpoint in piece.endpoints)
    return ready or not snapshot.claims
