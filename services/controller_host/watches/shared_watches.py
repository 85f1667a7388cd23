"""One list and watch a kind, whatever the number of controllers: what they are told of it, and what they are shown.

In: what each controller watches. Out: word to each controller that a change concerns, and objects as compact JSON, held
once. Called by ``hosting``, and by ``app``, which runs it. Invariants: what the platform did not grant is
not watched; a change by which an object leaves a selector is told as one more, and it concerns nobody by that selector
from then on; nothing counts as gone before a list was complete; a kind that is not there is looked for again; who may
not see one of the things that it watches is told of none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller_host.domain.keys import ObjectKey
from controller_host.domain.watch_specs import Refusal, RefusalReason, WatchSpec, specs_of
from controller_host.timings import CacheTimings
from controller_host.watches.cached_kind import CachedKind
from controller_host.watches.reviews import Reviews
from trellis.crds.wasm_controllers import Watch
from trellis.kube.client import Kube
from trellis.kube.discovery import Discovery
from trellis.kube.resources import Resource

Told = Callable[[str, ObjectKey], None]
SECRET: Final = ("v1", "Secret")
"""Never watched, whatever is granted."""


@dataclass(frozen=True, slots=True)
class WatchContext:
    """By what watches see: the service's own connection, where kinds are, and whom what may be shown."""

    kube: Kube
    discovery: Discovery
    reviews: Reviews


class SharedWatches:
    """The caches of all kinds. ``granted``: kinds that the platform lets controllers watch, ``batch/v1/Job``.

    ``on_state`` gets a controller of which ``refused`` or ``whole`` may say something else than before. It is called in
    the event loop and has to be quick, as are those that ``want`` takes.
    """

    def __init__(
        self,
        sight: WatchContext,
        granted: Collection[str],
        *,
        on_state: Callable[[str], None] = lambda _: None,
        timings: CacheTimings = CacheTimings(),  # noqa: B008 - frozen
    ) -> None:
        self._sight = sight
        self._granted = frozenset(granted)
        self._on_state = on_state
        self._timings = timings
        self._kinds: dict[tuple[str, str], CachedKind] = {}
        self._wanted: dict[str, tuple[WatchSpec, ...]] = {}
        self._on_change: dict[str, Told] = {}
        self._wake = asyncio.Event()

    def want(self, controller: str, namespace: str, watches: Sequence[Watch], on_change: Told) -> None:
        """Watch these for a controller (``namespace/name``) of a namespace, in place of what it wanted.

        ``on_change`` gets the controller and what changed. What is there already is not told by it: ``keys`` says that,
        once ``on_state`` tells that it is whole.
        """
        specs = specs_of(watches, namespace)
        if self._wanted.get(controller) == specs:
            return
        self.drop(controller)
        self._wanted[controller], self._on_change[controller] = specs, on_change
        for spec in specs:
            if self._is_granted(spec):
                kind = self._kinds.get(spec.type)
                if kind is None:
                    kind = self._kinds[spec.type] = CachedKind(
                        spec.type, self._sight.kube, self._sight.discovery, self._timings, self._changed, self._stated
                    )
                kind.interests.add(controller, spec)
        self._wake.set()

    def drop(self, controller: str) -> None:
        """Watch nothing for a controller any more."""
        self._on_change.pop(controller, None)
        for spec in self._wanted.pop(controller, ()):
            if (kind := self._kinds.get(spec.type)) is not None:
                kind.interests.remove(controller)
        self._wake.set()

    def item(self, key: ObjectKey) -> bytes | None:
        """Return an object's JSON as the cache has it, None if it has none. Its managedFields are left out."""
        kind = self._kinds.get((key.api_version, key.kind))
        held = None if kind is None else kind.held(key)
        return None if held is None else held.body

    def version(self, key: ObjectKey) -> str:
        """Return ``<uid>/<resourceVersion>`` of an object, "" if there is none: equal ones are the same state."""
        kind = self._kinds.get((key.api_version, key.kind))
        held = None if kind is None else kind.held(key)
        return "" if held is None else f"{held.uid}/{held.version}"

    def concerns(self, controller: str, key: ObjectKey) -> bool:
        """Return whether an object that is there concerns a controller as it is now."""
        kind = self._kinds.get((key.api_version, key.kind))
        held = None if kind is None else kind.held(key)
        if kind is None or held is None:
            return False
        return any(spec.means(key.namespace, held.labels) for spec in kind.interests.specs(controller))

    def keys(self, controller: str) -> Iterator[ObjectKey]:
        """Yield all objects that concern a controller now, each once."""
        for kind_type in dict.fromkeys(spec.type for spec in self._wanted.get(controller, ())):
            if (kind := self._kinds.get(kind_type)) is not None:
                yield from kind.keys(controller)

    def whole(self, controller: str) -> bool:
        """Return whether all that its watches could show is there: only then is gone what is not shown.

        Of a kind that does not exist there is nothing, and that is all of it. Of what is not granted, or cannot be read
        now, nobody knows: a controller with such a watch is not whole.
        """
        for spec in self._wanted.get(controller, ()):
            kind = self._kinds.get(spec.type) if self._is_granted(spec) else None
            if kind is None or not kind.whole:
                return False
        return controller in self._wanted

    def absent(self, controller: str) -> frozenset[tuple[str, str]]:
        """Return the kinds, by apiVersion and kind, of its watches that the API server does not serve now."""
        kinds = (self._kinds.get(spec.type) for spec in self._wanted.get(controller, ()))
        return frozenset(kind.type for kind in kinds if kind is not None and kind.absent)

    def refused(self, controller: str, user: str = "") -> Mapping[WatchSpec, Refusal]:
        """Return which of its watches do not work now, and why.

        With ``user``, those too of which that account was found not to see anything; who has seen nothing yet has not
        been asked about.
        """
        found: dict[WatchSpec, Refusal] = {}
        for spec in self._wanted.get(controller, ()):
            refusal = self._refusal(spec) or (self._forbidden(spec, user) if user else None)
            if refusal is not None:
                found[spec] = refusal
        return found

    def watched(self, controller: str, key: ObjectKey) -> bool:
        """Return whether a controller watches any objects of a key's kind."""
        return any(spec.type == (key.api_version, key.kind) for spec in self._wanted.get(controller, ()))

    async def allowed(self, controller: str, user: str, key: ObjectKey) -> bool | None:
        """Return whether a controller may be told of an object of a kind that it watches; None: nobody knows yet.

        It may if all its watches can be read and its account may see all that they show, whichever the object is one
        of: a controller that does not see a part of what it watches would take that for gone.
        """
        if not self.watched(controller, key) or not self.whole(controller):
            return None
        places = [place for spec in self._wanted[controller] for place in self._places(spec)]
        found: bool | None = True
        for resource, namespace in dict.fromkeys(places):
            before = self._sight.reviews.last(user, resource, namespace)
            answer = await self._sight.reviews.allowed(user, resource, namespace)
            if answer is not None and answer is not before and (before, answer) != (None, True):
                self._on_state(controller)
            if answer is False or found is True:
                found = answer
        return found

    async def run(self) -> None:
        """Keep the caches of what is wanted until cancelled; one that nobody wants ends after a while."""
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
        """Start and end caches; returns the seconds until one is to end, None if none is."""
        now = time.monotonic()
        waits = []
        for kind_type, kind in list(self._kinds.items()):
            if kind.interests:
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
                f"controllers of this platform may not watch {spec}, only {listed}: ask for it to be added to "
                "TRELLIS_CONTROLLER_RESOURCES, with the right to list and watch it"
            )
            return Refusal(RefusalReason.WATCH_NOT_GRANTED, message)
        kind = self._kinds.get(spec.type)
        return None if kind is None else kind.trouble

    def _forbidden(self, spec: WatchSpec, user: str) -> Refusal | None:
        places, reviews = self._places(spec), self._sight.reviews
        if not places:
            return None
        resource = places[0][0]
        answers = {place: reviews.last(user, resource, place) for _, place in places}
        denied = [place for place, allowed in answers.items() if allowed is False]
        if denied:
            named = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            where = f"namespace {', '.join(denied)}" if any(denied) else "the whole cluster"
            role = "Role" if any(denied) else "ClusterRole"
            message = f"{user} may not list and watch {named} in {where}: give it a {role} for that"
            return Refusal(RefusalReason.ACCOUNT_FORBIDDEN, message)
        if reviews.failing and None in answers.values():
            return Refusal(RefusalReason.ACCESS_NOT_CHECKED, f"nobody can say what {user} may see: {reviews.failing}")
        return None

    def _places(self, spec: WatchSpec) -> list[tuple[Resource, str]]:
        """Return what an account has to see for a watch, and in which namespaces ("": in all)."""
        kind = self._kinds.get(spec.type)
        if kind is None or kind.resource is None:
            return []  # there is nothing of it to be seen
        everywhere = spec.namespaces is None or not kind.resource.namespaced
        return [(kind.resource, namespace) for namespace in (("",) if everywhere else spec.namespaces or ())]

    def _changed(self, controller: str, key: ObjectKey) -> None:
        self._on_change[controller](controller, key)

    def _stated(self, kind: CachedKind) -> None:
        for controller in kind.interests.controllers():
            self._on_state(controller)
