"""What wakes service_reflector from Kubernetes: groups, pods, Services, EndpointSlices, the operator that it replaces.

In: changes from the informers. Out: indexes, and keys in the queues. Called by the informers, in the event loop.
Invariant: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from service_reflector.domain.keeping import read_kept
from service_reflector.gather import Known
from trellis import names
from trellis.kube.informer import Change
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.service_views import PodView, RouteView, ServiceView, SliceView
from trellis.telemetry import get_logger

Wake = Callable[[str], None]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ROUTE_SELECTOR = names.LABEL_APPLIED

_log = get_logger(__name__)


def on_group(known: Known, wake_lattice: Wake) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of groups: which lattices there are, and where."""

    def handle(change: Change[GroupView]) -> None:
        for group in (change.old, change.new):
            if group is not None:
                _drop(known.by_lattice, group.lattice, change.key)
                _drop(known.by_namespace, group.namespace, change.key)
        if change.new is not None:
            known.by_namespace.setdefault(change.new.namespace, {})[change.key] = change.new
        if change.new is not None and change.new.lattice:
            known.by_lattice.setdefault(change.new.lattice, {})[change.key] = change.new
            known.missing_since.pop(change.new.lattice, None)
        for mark in {group.lattice for group in (change.old, change.new) if group is not None} - {""}:
            wake_lattice(mark)

    return handle


def on_pod(known: Known, wake: Wake) -> Callable[[Change[PodView]], None]:
    """Return the handler of changes of pods: the Services of its lattice are looked at."""

    def handle(change: Change[PodView]) -> None:
        for pod in (change.old, change.new):
            if pod is not None:
                _drop(known.pods, pod.group_key, change.key)
        if change.new is not None:
            known.pods.setdefault(change.new.group_key, {})[change.key] = change.new
        groups = {pod.group_key for pod in (change.old, change.new) if pod is not None}
        for mark in {group.lattice for key in groups if (group := known.groups.get(key)) is not None} - {""}:
            for key in known.keys_of(mark, None):
                wake(key)
        for key in known.keys_left(groups):
            wake(key)

    return handle


def on_service(known: Known, wake: Wake) -> Callable[[Change[ServiceView]], None]:
    """Return the handler of changes of Services; one of somebody else may have been in the way."""

    def handle(change: Change[ServiceView]) -> None:
        for one in (change.old, change.new):
            if one is not None and one.application:
                _discard(known.mirrors, (one.lattice, one.application), change.key)
                _discard(known.by_key, f"{one.namespace}/{one.application}", change.key)
                _discard(known.by_mark, one.lattice, change.key)
        if change.old is not None and (change.new is None or change.new.uid != change.old.uid):
            known.gone.discard(change.old.uid)
            known.preserved.pop(change.key, None)
        if change.new is not None and change.new.application:
            new = change.new
            known.mirrors.setdefault((new.lattice, new.application), set()).add(change.key)
            known.by_key.setdefault(f"{new.namespace}/{new.application}", set()).add(change.key)
            known.by_mark.setdefault(new.lattice, set()).add(change.key)
        for key in {f"{one.namespace}/{one.application or one.name}" for one in (change.old, change.new) if one}:
            wake(key)

    return handle


def on_slice(known: Known, wake: Wake) -> Callable[[Change[SliceView]], None]:
    """Return the handler of changes of our EndpointSlices."""

    def handle(change: Change[SliceView]) -> None:
        for one in (change.old, change.new):
            if one is not None:
                _drop(known.slices, one.service_key, change.key)
            if one is not None and (kept := read_kept(one.kept)) is not None:
                _drop(known.kept, f"{one.namespace}/{kept.application}", change.key)
        if change.new is not None:
            known.slices.setdefault(change.new.service_key, {})[change.key] = change.new
            if (kept := read_kept(change.new.kept)) is not None:
                key = f"{change.new.namespace}/{kept.application}"
                known.kept.setdefault(key, {})[change.key] = change.new
                wake(key)
        for key in {one.service_key for one in (change.old, change.new) if one is not None}:
            service = known.services.get(key)
            if service is not None:
                wake(f"{service.namespace}/{service.application or service.name}")

    return handle


def on_route(known: Known, wake: Wake) -> Callable[[Change[RouteView]], None]:
    """Return the handler of changes of our HTTPRoutes."""

    def handle(change: Change[RouteView]) -> None:
        service = known.services.get(change.key)
        if service is not None and service.application:
            wake(f"{service.namespace}/{service.application}")

    return handle


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
