"""Cache of one kind: discovery, list and watch, and notifications of controllers with a matching watch.

In: a kind, and the watches of controllers. Out: objects, and calls of ``changed``. Created and run by
``shared_watches``. Invariants: objects are visible only after a complete list, and all differences from the previous
state are then reported; an object stays until a list or an event removes it, also if the kind moves to another
resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller_host.domain.keys import ObjectKey
from controller_host.domain.label_index import LabelIndex
from controller_host.domain.watch_index import WatchIndex
from controller_host.domain.watch_specs import Refusal, RefusalReason, WatchSpec
from controller_host.timings import CacheTimings
from trellis.kube.client import Kube
from trellis.kube.discovery import Discovery, UnknownKind
from trellis.kube.errors import Forbidden, KubeError
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import Manifest, Resource
from trellis.limits.backoff import Attempts
from trellis.limits.compact import compact
from trellis.telemetry import get_logger

_VERBS: Final = ("list", "watch")
_NONE: Final[Mapping[str, str]] = {}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CachedObject:
    """A cached object. Equality means the same object in the same version."""

    uid: str
    version: str
    labels: Mapping[str, str] = field(compare=False)
    body: bytes = field(compare=False, repr=False)
    """JSON without managedFields."""


Names = dict[str, dict[str, CachedObject]]
"""Objects by namespace ("" for cluster-scoped kinds) and name."""


@dataclass(eq=False)
class CachedKind:
    """Cache of a kind. ``resource``: the discovered resource; ``trouble``: reason why it cannot be watched."""

    type: tuple[str, str]
    kube: Kube
    discovery: Discovery
    timings: CacheTimings
    changed: Callable[[str, ObjectKey], None]
    stated: Callable[[CachedKind], None]
    watch_index: WatchIndex = field(default_factory=WatchIndex)
    task: asyncio.Task[None] | None = None
    unwanted_since: float | None = None
    resource: Resource | None = None
    trouble: Refusal | None = None
    _names: Names = field(default_factory=dict)
    _live: Informer[CachedObject] | None = None
    """The informer whose objects are visible."""
    _complete: bool = False
    _labels: LabelIndex = field(default_factory=LabelIndex)

    @property
    def whole(self) -> bool:
        """True if the cache is complete; the cache of a kind that is not served is empty (see ``absent``)."""
        return self._complete and (self.trouble is None or self.absent)

    @property
    def absent(self) -> bool:
        """True if the API server does not serve the kind: there are no objects, or its CRD is being re-created."""
        return self.trouble is not None and self.trouble.reason is RefusalReason.UNKNOWN_KIND

    def get(self, key: ObjectKey) -> CachedObject | None:
        """Return an object, None if it is not cached."""
        return self._names.get(key.namespace, {}).get(key.name)

    def keys(self, controller: str) -> Iterator[ObjectKey]:
        """Yield the objects that match the watches of a controller, each once."""
        specs = self.watch_index.specs(controller)
        everywhere = any(spec.namespaces is None for spec in specs) or "" in self._names
        named = dict.fromkeys(item for spec in specs for item in spec.namespaces or ())
        for namespace in list(self._names) if everywhere else named:
            names = self._names.get(namespace, {})
            for name in list(self._candidates(namespace, specs)):
                cached = names.get(name)
                if cached is not None and any(spec.means(namespace, cached.labels) for spec in specs):
                    yield ObjectKey(*self.type, namespace, name)

    def _candidates(self, namespace: str, specs: list[WatchSpec]) -> dict[str, None]:
        """Return the names in a namespace that may match: by a label term with values, if every watch has one."""
        found: dict[str, None] = {}
        for spec in specs:
            wanted = next((term for term in spec.terms if term.values and not term.negated), None)
            if wanted is None:
                return dict.fromkeys(self._names.get(namespace, ()))
            found.update(dict.fromkeys(self._labels.find(self._names, namespace, wanted)))
        return found

    async def run(self) -> None:
        """Discover the kind and maintain its cache forever; repeat the discovery if the kind moves."""
        attempts = Attempts()
        while True:
            try:
                self.resource = await self.discovery.resource(*self.type, verbs=_VERBS)
            except UnknownKind as error:
                self._absent(error)
                await asyncio.sleep(self.timings.absent)
            except KubeError as error:
                _log.debug(
                    "discovery of a kind failed, retrying", kind=self.type[1], error=self.kube.describe_error(error)
                )
                await asyncio.sleep(attempts.next())
            else:
                attempts.reset()
                await self._keep(self.resource)
                if self.trouble is not None:
                    await asyncio.sleep(self.timings.absent)

    async def _keep(self, resource: Resource) -> None:
        """Watch a resource until the kind moves to another resource or is no longer served."""
        informer = Informer(
            self.kube,
            resource,
            lambda manifest: project(self.type, manifest),
            lambda change: self._take(informer, change),
            optional=True,
            refusable=True,
            timings=self.timings.watch,
        )
        running = asyncio.create_task(informer.run(), name=f"watch {resource.plural}")
        synced = asyncio.create_task(informer.synced.wait(), name=f"first list of {resource.plural}")
        try:
            await asyncio.wait({running, synced}, return_when=asyncio.FIRST_COMPLETED)
            while not running.done():
                self._look_at(informer)
                if await self._has_moved(resource, informer):
                    return
                await asyncio.wait({running}, timeout=self.timings.look)
            await running
        finally:
            for task in (running, synced):
                task.cancel()
            await asyncio.gather(running, synced, return_exceptions=True)

    def _look_at(self, informer: Informer[CachedObject]) -> None:
        """Take over the objects of an informer after its first list, and its errors."""
        before = (self.trouble, self.whole)
        lacking = informer.lacking
        if lacking is None:
            self.trouble = None
            if informer is not self._live:
                self._show(informer)
        elif isinstance(lacking, Forbidden):
            message = (
                f"controller_host cannot list and watch {self.type[0]}/{self.type[1]} of "
                f"TRELLIS_CONTROLLER_RESOURCES: grant its account this permission ({lacking.message})"
            )
            self.trouble = Refusal(RefusalReason.WATCH_NOT_GRANTED, message)
        else:
            self.trouble = Refusal(RefusalReason.UNKNOWN_KIND, lacking.message)
            self._complete = True
        if before != (self.trouble, self.whole):
            self.stated(self)

    def _show(self, informer: Informer[CachedObject]) -> None:
        """Make the objects of an informer visible, and report differences from the previous objects.

        The first time there is nothing to report: controllers list all keys when their caches become complete.
        """
        former, first, self._names = self._names, not self._complete, {}
        self._labels.clear()
        for object_key, cached in informer.objects.items():
            namespace, _, name = object_key.rpartition("/")
            self._names.setdefault(namespace, {})[name] = cached
        self._live, self._complete = informer, True
        if first:
            return
        for namespace in former.keys() | self._names.keys():
            old, new = former.get(namespace, {}), self._names.get(namespace, {})
            for name in old.keys() | new.keys():
                if old.get(name) != new.get(name):
                    self._notify(namespace, name, old.get(name), new.get(name))

    def _take(self, informer: Informer[CachedObject], change: Change[CachedObject]) -> None:
        if informer is not self._live:
            return  # its objects become visible together
        namespace, _, name = change.key.rpartition("/")
        names = self._names.setdefault(namespace, {})
        if change.new is not None:
            names[name] = change.new
        else:
            names.pop(name, None)
            if not names:
                del self._names[namespace]
        old, new = change.old, change.new
        self._labels.change(namespace, name, old.labels if old else None, new.labels if new else None)
        self._notify(namespace, name, old, new)

    def _notify(self, namespace: str, name: str, old: CachedObject | None, new: CachedObject | None) -> None:
        """Notify the controllers whose watches match the old or the new object."""
        found = self.watch_index.concerned(namespace, new.labels) if new is not None else set()
        if old is not None and (new is None or old.labels != new.labels):
            found |= self.watch_index.concerned(namespace, old.labels)
        if found:
            key = ObjectKey(*self.type, namespace, name)
            for controller in found:
                self.changed(controller, key)

    def _absent(self, error: UnknownKind) -> None:
        """Record that the kind is not served, and has no objects."""
        trouble = Refusal(RefusalReason.UNKNOWN_KIND, error.message)
        if trouble != self.trouble or not self._complete:
            self.trouble, self._complete = trouble, True
            self.stated(self)

    async def _has_moved(self, resource: Resource, informer: Informer[CachedObject]) -> bool:
        """Return whether the kind has to be discovered again; discovery is cached."""
        if informer.lacking is not None and not isinstance(informer.lacking, Forbidden):
            self.discovery.forget(resource.api_version)
            return True
        try:
            return await self.discovery.resource(*self.type, verbs=_VERBS) != resource
        except UnknownKind:
            return True
        except KubeError:
            return False


def project(kind_type: tuple[str, str], manifest: Manifest) -> CachedObject:
    """Return the cached form of an object, with its kind, which items of lists do not contain."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    whole = {"apiVersion": kind_type[0], "kind": kind_type[1]} | manifest | {"metadata": metadata}
    labels = metadata.get("labels") or _NONE
    return CachedObject(metadata["uid"], metadata["resourceVersion"], labels, compact(whole))
