"""One list and watch per kind for all controllers: notifications of changes, and cached objects.

In: the watches of each controller. Out: notifications of the controllers with a matching watch, and objects as compact
JSON, stored once. Called by ``hosting``, and by ``app``, which runs it. Invariants: only kinds that the platform grants
are watched; a change that removes an object from a selector is reported once more, and the object does not match the
selector from then on; an object counts as deleted only after a complete list; the discovery of a missing kind is
retried; a controller without permission for one of its watches receives no objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller_host.domain.keys import ObjectKey
from controller_host.domain.watch_specs import Refusal, RefusalReason, WatchSpec
from controller_host.timings import CacheTimings
from controller_host.watches.cached_kind import CachedKind
from controller_host.watches.reviews import Reviews
from trellis.kube.client import Kube
from trellis.kube.discovery import Discovery
from trellis.kube.resources import Resource

Callbacks = Callable[[str, ObjectKey], None]
SECRET: Final = ("v1", "Secret")
"""Never watched, even if granted."""


@dataclass(frozen=True, slots=True)
class WatchContext:
    """Clients of watches: the service's own connection, discovery, and access reviews."""

    kube: Kube
    discovery: Discovery
    reviews: Reviews


class SharedWatches:
    """Caches of objects by kind. ``granted``: kinds that controllers can watch, in the format ``batch/v1/Job``.

    ``on_state`` is called with a controller when its ``refused`` or ``whole`` may have changed. It is called in the
    event loop and must not block, nor must the callbacks of ``want``.
    """

    def __init__(
        self,
        context: WatchContext,
        granted: Collection[str],
        *,
        on_state: Callable[[str], None] = lambda _: None,
        timings: CacheTimings = CacheTimings(),  # noqa: B008 - frozen
    ) -> None:
        self._context = context
        self._granted = frozenset(granted)
        self._on_state = on_state
        self._timings = timings
        self._kinds: dict[tuple[str, str], CachedKind] = {}
        self._wanted: dict[str, tuple[WatchSpec, ...]] = {}
        self._on_change: dict[str, Callbacks] = {}
        self._wake = asyncio.Event()

    def want(self, controller: str, specs: tuple[WatchSpec, ...], on_change: Callbacks) -> None:
        """Set the watches of a controller (``namespace/name``), in place of its previous ones.

        ``on_change`` is called with the controller and the changed key, but not for existing objects: ``keys`` returns
        these when ``whole`` is true after a call of ``on_state``.
        """
        if self._wanted.get(controller) == specs:
            return
        self.drop(controller)
        self._wanted[controller], self._on_change[controller] = specs, on_change
        for spec in specs:
            if self._is_granted(spec):
                kind = self._kinds.get(spec.type)
                if kind is None:
                    kind = self._kinds[spec.type] = CachedKind(
                        spec.type,
                        self._context.kube,
                        self._context.discovery,
                        self._timings,
                        self._changed,
                        self._stated,
                    )
                kind.watch_index.add(controller, spec)
        self._wake.set()

    def drop(self, controller: str) -> None:
        """Remove the watches of a controller."""
        self._on_change.pop(controller, None)
        for spec in self._wanted.pop(controller, ()):
            if (kind := self._kinds.get(spec.type)) is not None:
                kind.watch_index.remove(controller)
        self._wake.set()

    def item(self, key: ObjectKey) -> bytes | None:
        """Return the cached JSON of an object, without managedFields, None if it is not cached."""
        kind = self._kinds.get((key.api_version, key.kind))
        cached = None if kind is None else kind.get(key)
        return None if cached is None else cached.body

    def version(self, key: ObjectKey) -> str:
        """Return ``<uid>/<resourceVersion>`` of an object, "" if it is not cached: equal values mean the same state."""
        kind = self._kinds.get((key.api_version, key.kind))
        cached = None if kind is None else kind.get(key)
        return "" if cached is None else f"{cached.uid}/{cached.version}"

    def concerns(self, controller: str, key: ObjectKey) -> bool:
        """Return whether an existing object matches the watches of a controller."""
        kind = self._kinds.get((key.api_version, key.kind))
        cached = None if kind is None else kind.get(key)
        if kind is None or cached is None:
            return False
        return any(spec.means(key.namespace, cached.labels) for spec in kind.watch_index.specs(controller))

    def keys(self, controller: str) -> Iterator[ObjectKey]:
        """Yield all objects that match the watches of a controller, each once."""
        for kind_type in dict.fromkeys(spec.type for spec in self._wanted.get(controller, ())):
            if (kind := self._kinds.get(kind_type)) is not None:
                yield from kind.keys(controller)

    def whole(self, controller: str) -> bool:
        """Return whether the caches of all its watches are complete: only then, a missing object is deleted.

        The cache of a kind that does not exist is complete and empty. A watch that is not granted, or cannot be read
        now, makes the result false.
        """
        for spec in self._wanted.get(controller, ()):
            kind = self._kinds.get(spec.type) if self._is_granted(spec) else None
            if kind is None or not kind.whole:
                return False
        return controller in self._wanted

    def absent(self, controller: str) -> frozenset[tuple[str, str]]:
        """Return apiVersion and kind of each watch of a controller that the API server does not serve."""
        kinds = (self._kinds.get(spec.type) for spec in self._wanted.get(controller, ()))
        return frozenset(kind.type for kind in kinds if kind is not None and kind.absent)

    def refused(self, controller: str, user: str = "") -> Mapping[WatchSpec, Refusal]:
        """Return the watches of a controller that do not work, with the reasons.

        With ``user``, include the watches that a review of this account denied; there are no reviews before the first
        delivery.
        """
        found: dict[WatchSpec, Refusal] = {}
        for spec in self._wanted.get(controller, ()):
            refusal = self._refusal(spec) or (self._forbidden(spec, user) if user else None)
            if refusal is not None:
                found[spec] = refusal
        return found

    def watched(self, controller: str, key: ObjectKey) -> bool:
        """Return whether a controller watches the kind of a key."""
        return any(spec.type == (key.api_version, key.kind) for spec in self._wanted.get(controller, ()))

    async def allowed(self, controller: str, user: str, key: ObjectKey) -> bool | None:
        """Return whether an object of a watched kind can be delivered to a controller; None: unknown yet.

        This requires that all its watches can be read, and that its account has permission for all of them: a
        controller that does not receive a part of its objects would treat them as deleted.
        """
        if not self.watched(controller, key) or not self.whole(controller):
            return None
        places = [place for spec in self._wanted[controller] for place in self._places(spec)]
        found: bool | None = True
        for resource, namespace in dict.fromkeys(places):
            before = self._context.reviews.last(user, resource, namespace)
            answer = await self._context.reviews.allowed(user, resource, namespace)
            if answer is not None and answer is not before and (before, answer) != (None, True):
                self._on_state(controller)
            if answer is False or found is True:
                found = answer
        return found

    async def run(self) -> None:
        """Run the caches of all watched kinds until cancelled; end an unused cache after ``CacheTimings.linger``."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                wait = self._tend(group)
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    def _tend(self, group: asyncio.TaskGroup) -> float | None:
        """Start and end caches; return the seconds until the next one has to end, None if none has to."""
        now = time.monotonic()
        waits = []
        for kind_type, kind in list(self._kinds.items()):
            if kind.watch_index:
                kind.unwanted_since = None
                if kind.task is None:
                    kind.task = group.create_task(kind.run(), name=f"shared watch of {kind_type[1]}")
                continue
            kind.unwanted_since = now if kind.unwanted_since is None else kind.unwanted_since
            left = kind.unwanted_since + self._timings.linger - now
            if left > 0:
                waits.append(left)
                continue
            if kind.task is not None:
                kind.task.cancel()
            del self._kinds[kind_type]
        return min(waits, default=None)

    def _is_granted(self, spec: WatchSpec) -> bool:
        return str(spec) in self._granted and spec.type != SECRET

    def _refusal(self, spec: WatchSpec) -> Refusal | None:
        if not self._is_granted(spec):
            listed = ", ".join(sorted(self._granted)) or "none"
            message = (
                f"controllers of this platform cannot watch {spec}, only {listed}: have it added to "
                "TRELLIS_CONTROLLER_RESOURCES, with the permission to list and watch it"
            )
            return Refusal(RefusalReason.WATCH_NOT_GRANTED, message)
        kind = self._kinds.get(spec.type)
        return None if kind is None else kind.trouble

    def _forbidden(self, spec: WatchSpec, user: str) -> Refusal | None:
        places, reviews = self._places(spec), self._context.reviews
        if not places:
            return None
        resource = places[0][0]
        answers = {place: reviews.last(user, resource, place) for _, place in places}
        denied = [place for place, allowed in answers.items() if allowed is False]
        if denied:
            named = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            where = f"namespace {', '.join(denied)}" if any(denied) else "the whole cluster"
            role = "Role" if any(denied) else "ClusterRole"
            message = f"{user} cannot list and watch {named} in {where}: grant it a {role} with these verbs"
            return Refusal(RefusalReason.ACCOUNT_FORBIDDEN, message)
        if reviews.failing and None in answers.values():
            return Refusal(RefusalReason.ACCESS_NOT_CHECKED, f"access of {user} cannot be reviewed: {reviews.failing}")
        return None

    def _places(self, spec: WatchSpec) -> list[tuple[Resource, str]]:
        """Return the resources and namespaces ("": all) that an account has to be able to list for a watch."""
        kind = self._kinds.get(spec.type)
        if kind is None or kind.resource is None:
            return []  # it has no objects
        everywhere = spec.namespaces is None or not kind.resource.namespaced
        return [(kind.resource, namespace) for namespace in (("",) if everywhere else spec.namespaces or ())]

    def _changed(self, controller: str, key: ObjectKey) -> None:
        self._on_change[controller](controller, key)

    def _stated(self, kind: CachedKind) -> None:
        for controller in kind.watch_index.controllers():
            self._on_state(controller)
