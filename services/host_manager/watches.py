"""The watches of host_manager: each kind in all namespaces, or in the configured ones.

In: a client, namespaces. Out: informers to run; their changes fill indexes, and put keys in the queues. Called by
``app`` and, in the event loop, by the informers. Invariants: a handler makes no decisions; a namespace that is not
listed yet causes no action in it, and does not block other namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from host_manager.domain.pods import PodView, view_pod
from host_manager.domain.views import BudgetView, GroupView, view_budget, view_group
from host_manager.domain.workloads import WorkloadView, view_workload
from host_manager.gather import Cache
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.informers import Informers
from trellis.kube.resources import BUDGETS, DAEMON_SETS, DEPLOYMENTS, HOST_CONFIGS, PODS
from trellis.lattice.wasmcloud_operator import on_operator, view_operator
from trellis.provisioning.other_controllers import NAMES, Controller, Peer

POD_SELECTOR: Final = f"{names.LABEL_MANAGED_BY} in ({','.join(sorted(NAMES[Peer.WASMCLOUD_OPERATOR]))})"
"""Pods and workloads of host groups: labels of wasmcloud-operator, including those before 0.5.1."""
Wake = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Functions that enqueue a host group now, a group after a delay that collects changes, a pod, or all keys."""

    group: Callable[[str], None]
    group_soon: Callable[[str], None]
    pod: Callable[[str], None]
    all: Callable[[], None]


class Watches:
    """The informers of host_manager. ``places``: the configured namespaces, empty for all namespaces."""

    def __init__(self, kube: Kube, cache: Cache, places: tuple[str, ...], enqueue: Enqueue) -> None:
        self._places = places
        # Configured namespaces require the CRD; a process for all services may run in a cluster without it.
        optional = not places
        group, pod = on_group(cache, enqueue.group), on_pod(cache, enqueue.group_soon, enqueue.pod)
        budget = on_budget(cache, enqueue.group_soon)
        workload, operator = on_workload(cache, enqueue.group_soon), on_operator(cache, cache.operators, enqueue.all)
        self._groups: Informers[GroupView] = Informers(
            places,
            lambda place: Informer(
                kube, HOST_CONFIGS, view_group, group, place, optional=optional, states=True, objects=cache.groups
            ),
        )
        self._pods: Informers[PodView] = Informers(
            places, lambda place: Informer(kube, PODS, view_pod, pod, place, POD_SELECTOR, objects=cache.pods)
        )
        self._budgets: Informers[BudgetView] = Informers(
            places,
            lambda place: Informer(
                kube, BUDGETS, view_budget, budget, place, refusable=optional, objects=cache.budgets
            ),
        )
        self._deployments: Informers[WorkloadView] = Informers(
            places,
            lambda place: Informer(
                kube, DEPLOYMENTS, view_workload, workload, place, POD_SELECTOR, objects=cache.deployments
            ),
        )
        self._daemon_sets: Informers[WorkloadView] = Informers(
            places,
            lambda place: Informer(
                kube, DAEMON_SETS, view_workload, workload, place, POD_SELECTOR, objects=cache.daemon_sets
            ),
        )
        # Required: without this watch, both controllers could be active.
        self._operators: Informers[Controller] = Informers(
            places,
            lambda place: Informer(kube, DEPLOYMENTS, view_operator, operator, place, objects=cache.operators),
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        for kind in self._kinds():
            yield from kind

    def covers(self, key: str) -> bool:
        """Return whether the namespace of an object (``namespace/name``) is watched."""
        return not self._places or key.partition("/")[0] in self._places

    def knows(self, key: str) -> bool:
        """Return whether the namespace of an object (``namespace/name``) is listed."""
        place = key.partition("/")[0]
        return all(kind.synced(place if self._places else None) for kind in self._kinds())

    @property
    def complete(self) -> bool:
        """True if all host groups and pods are listed."""
        return all(item.known for kind in (self._groups, self._pods) for item in kind)

    def _kinds(self) -> tuple[Informers[Any], ...]:
        return self._groups, self._pods, self._budgets, self._deployments, self._daemon_sets, self._operators


def only_our_finalizer(change: Change[GroupView]) -> bool:
    """Return whether the finalizer of Trellis is the only change of a host group."""
    if change.old is None or change.new is None or names.FINALIZER_HOSTS not in change.new.finalizers:
        return False
    return replace(change.old, finalizers=()) == replace(change.new, finalizers=())


def on_group(cache: Cache, wake: Wake) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of host groups."""

    def handle(change: Change[GroupView]) -> None:
        if change.old is None:
            cache.waiting.add(change.key)
        if not only_our_finalizer(change):
            cache.invalidate(change.key)
            wake(change.key)

    return handle


def on_budget(cache: Cache, wake: Wake) -> Callable[[Change[BudgetView]], None]:
    """Return the handler of changes of disruption budgets, each of which may select the pods of a host group.

    A budget with the name of a host group concerns only that one, and host_manager created it.
    """

    def handle(change: Change[BudgetView]) -> None:
        own = change.key in cache.groups
        if own and change.old is None:
            return
        place = change.key.partition("/")[0]
        for key in [change.key] if own else [key for key in cache.groups if key.partition("/")[0] == place]:
            cache.invalidate(key)
            wake(key)

    return handle


def on_workload(cache: Cache, wake: Wake) -> Callable[[Change[WorkloadView]], None]:
    """Return the handler of changes of workloads; the reconcile detects changes by other writers."""

    def handle(change: Change[WorkloadView]) -> None:
        if change.new is None:
            cache.invalidate(change.key)
        elif not change.new.seen and cache.early_for(change.key) is not None:
            return  # created just now: it has no status yet, and the first status of the group is scheduled
        wake(change.key)

    return handle


def on_pod(cache: Cache, wake_group: Wake, wake_pod: Wake) -> Callable[[Change[PodView]], None]:
    """Return the handler of changes of pods; the status of the group is delayed, events are not."""

    def handle(change: Change[PodView]) -> None:
        for pod in (change.old, change.new):
            if pod is not None:
                cache.by_group.setdefault(pod.group_key, {}).pop(change.key, None)
        if change.new is not None:
            cache.by_group[change.new.group_key][change.key] = change.new
        for key in {pod.group_key for pod in (change.old, change.new) if pod is not None}:
            if not cache.by_group[key]:
                del cache.by_group[key]
            wake_group(key)
        wake_pod(change.key)

    return handle
