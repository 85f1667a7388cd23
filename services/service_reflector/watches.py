"""Watches of service_reflector: host groups, pods, Services, EndpointSlices, HTTPRoutes, the replaced operator.

In: a client. Out: informers to run; their changes fill indexes and enqueue keys. Called by ``app`` and, in the event
loop, by the informers. Invariant: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from service_reflector.gather import Cache
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import DEPLOYMENTS, ENDPOINT_SLICES, HOST_CONFIGS, HTTP_ROUTES, PODS, SERVICES
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.group_views import GroupView, view_group
from trellis.lattice.domain.preserved import read_preserved
from trellis.lattice.domain.service_views import (
    POD_SELECTOR,
    SLICE_SELECTOR,
    PodView,
    RouteView,
    ServiceView,
    SliceView,
    view_pod,
    view_route,
    view_service,
    view_slice,
)
from trellis.lattice.wasmcloud_operator import on_operator, view_operator
from trellis.provisioning.other_controllers import Controller

Wake = Callable[[str], None]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ROUTE_SELECTOR = names.LABEL_APPLIED


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Functions that enqueue the key of an application, a lattice ID, or all of them."""

    application: Callable[[str], None]
    lattice: Callable[[str], None]
    all: Callable[[], None]


class Watches:
    """The informers. Host groups are optional: a cluster without lattices need not serve the CRD.

    While the CRD is not served, host groups are unknown: ``groups_required_by`` returns why this service is not ready
    then, if so, and all keys are enqueued once the CRD is served.
    """

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        enqueue: Enqueue,
        groups_required_by: Callable[[], str | None],
        timings: WatchTimings = WatchTimings(),
    ) -> None:
        def groups_served() -> None:
            cache.missing_since.clear()
            enqueue.all()

        self.groups = Informer(
            kube,
            HOST_CONFIGS,
            view_group,
            on_group(cache, enqueue.lattice),
            optional=True,
            needed=groups_required_by,
            on_known=groups_served,
            timings=timings,
            objects=cache.groups,
        )
        self._pods = Informer(
            kube, PODS, view_pod, on_pod(cache, enqueue.application), label_selector=POD_SELECTOR, timings=timings
        )
        self.services = Informer(
            kube,
            SERVICES,
            view_service,
            on_service(cache, enqueue.application),
            timings=timings,
            objects=cache.services,
        )
        self.slices = Informer(
            kube,
            ENDPOINT_SLICES,
            view_slice,
            on_slice(cache, enqueue.application),
            label_selector=SLICE_SELECTOR,
            timings=timings,
        )
        # The Gateway API is optional in a cluster, and the permission to write routes is optional, too.
        self.routes = Informer(
            kube,
            HTTP_ROUTES,
            view_route,
            on_route(cache, enqueue.application),
            label_selector=ROUTE_SELECTOR,
            optional=True,
            refusable=True,
            on_known=enqueue.all,
            timings=timings,
            objects=cache.routes,
        )
        operators: dict[str, Controller] = {}
        self._operators = Informer(
            kube,
            DEPLOYMENTS,
            view_operator,
            on_operator(cache, operators, enqueue.all),
            refusable=True,
            timings=timings,
            objects=operators,
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        yield from (self.groups, self._pods, self.services, self.slices, self.routes, self._operators)


def on_group(cache: Cache, wake_lattice: Wake) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of host groups: it indexes them by lattice and by namespace."""

    def handle(change: Change[GroupView]) -> None:
        for group in (change.old, change.new):
            if group is not None:
                _drop(cache.by_lattice, group.lattice, change.key)
                _drop(cache.by_namespace, group.namespace, change.key)
        if change.new is not None:
            cache.by_namespace.setdefault(change.new.namespace, {})[change.key] = change.new
        if change.new is not None and change.new.lattice:
            cache.by_lattice.setdefault(change.new.lattice, {})[change.key] = change.new
            cache.missing_since.pop(change.new.lattice, None)
        for lattice_id in {group.lattice for group in (change.old, change.new) if group is not None} - {""}:
            wake_lattice(lattice_id)

    return handle


def on_pod(cache: Cache, wake: Wake) -> Callable[[Change[PodView]], None]:
    """Return the handler of changes of pods: it enqueues the Services of their lattices."""

    def handle(change: Change[PodView]) -> None:
        for pod in (change.old, change.new):
            if pod is not None:
                _drop(cache.pods, pod.group_key, change.key)
        if change.new is not None:
            cache.pods.setdefault(change.new.group_key, {})[change.key] = change.new
        groups = {pod.group_key for pod in (change.old, change.new) if pod is not None}
        for lattice_id in {group.lattice for key in groups if (group := cache.groups.get(key)) is not None} - {""}:
            for key in cache.keys_of(lattice_id, None):
                wake(key)
        for key in cache.keys_left(groups):
            wake(key)

    return handle


def on_service(cache: Cache, wake: Wake) -> Callable[[Change[ServiceView]], None]:
    """Return the handler of changes of Services; one of another owner may have occupied a name."""

    def handle(change: Change[ServiceView]) -> None:
        for item in (change.old, change.new):
            if item is not None and item.application:
                _discard(cache.reflected, (item.lattice, item.application), change.key)
                _discard(cache.by_key, f"{item.namespace}/{item.application}", change.key)
                _discard(cache.by_annotated_lattice, item.lattice, change.key)
        if change.old is not None and (change.new is None or change.new.uid != change.old.uid):
            cache.deleted.discard(change.old.uid)
            cache.preserved_slices.pop(change.key, None)
        if change.new is not None and change.new.application:
            new = change.new
            cache.reflected.setdefault((new.lattice, new.application), set()).add(change.key)
            cache.by_key.setdefault(f"{new.namespace}/{new.application}", set()).add(change.key)
            cache.by_annotated_lattice.setdefault(new.lattice, set()).add(change.key)
        keys = {f"{item.namespace}/{item.application or item.name}" for item in (change.old, change.new) if item}
        if change.old is None or change.new is None:
            for name, piece in cache.slices.get(change.key, {}).items():
                keys |= _note_kept(cache, name, piece, left=change.new is None)
        for key in keys:
            wake(key)

    return handle


def on_slice(cache: Cache, wake: Wake) -> Callable[[Change[SliceView]], None]:
    """Return the handler of changes of the EndpointSlices of Trellis."""

    def handle(change: Change[SliceView]) -> None:
        for item in (change.old, change.new):
            if item is not None:
                _drop(cache.slices, item.service_key, change.key)
                _note_kept(cache, change.key, item, left=False)
        if change.new is not None:
            cache.slices.setdefault(change.new.service_key, {})[change.key] = change.new
            if change.new.service_key not in cache.services:
                for key in _note_kept(cache, change.key, change.new, left=True):
                    wake(key)
        for key in {item.service_key for item in (change.old, change.new) if item is not None}:
            service = cache.services.get(key)
            if service is not None:
                wake(f"{service.namespace}/{service.application or service.name}")

    return handle


def on_route(cache: Cache, wake: Wake) -> Callable[[Change[RouteView]], None]:
    """Return the handler of changes of the HTTPRoutes of Trellis."""

    def handle(change: Change[RouteView]) -> None:
        service = cache.services.get(change.key)
        if service is not None and service.application:
            wake(f"{service.namespace}/{service.application}")

    return handle


def _note_kept(cache: Cache, name: str, piece: SliceView, *, left: bool) -> set[str]:
    """Cache a slice that keeps the addresses of a deleted Service (``left``), else drop it; return affected keys."""
    if (preserved := read_preserved(piece.preserved)) is None:
        return set()
    key = f"{piece.namespace}/{preserved.application}"
    if left:
        cache.preserved_slices.setdefault(key, {})[name] = piece
    else:
        _drop(cache.preserved_slices, key, name)
    return {key}


def _drop(index: dict[str, dict[str, V]], key: str, inner: str) -> None:
    found = index.get(key, {})
    found.pop(inner, None)
    if not found:
        index.pop(key, None)


def _discard(index: dict[K, set[str]], key: K, inner: str) -> None:
    found = index.get(key, set())
    found.discard(inner)
    if not found:
        index.pop(key, None)
