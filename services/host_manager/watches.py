"""What host_manager watches: of each kind all namespaces, or each of those that it is confined to.

In: a client, namespaces. Out: informers to run, which fill what is known and wake keys. Called by ``app``. Invariant:
what is not known of a namespace yet is no reason to do anything in it; it is none to do nothing in the others either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from host_manager.domain.pods import PodView, view_pod
from host_manager.domain.views import BudgetView, GroupView, view_budget, view_group
from host_manager.domain.workloads import WorkloadView, view_workload
from host_manager.gather import Known
from host_manager.watch import POD_SELECTOR, on_group, on_pod, on_workload
from trellis.kube.client import Kube
from trellis.kube.informer import Informer
from trellis.kube.informers import Informers
from trellis.kube.resources import BUDGETS, DAEMON_SETS, DEPLOYMENTS, HOST_CONFIGS, PODS
from trellis.lattice.wasmcloud_operator import on_operator, view_operator
from trellis.provisioning.other_controllers import Controller


@dataclass(frozen=True, slots=True)
class Wake:
    """What a change has run, by key: a group, now or with what else changes in a moment, a pod, or all of them."""

    group: Callable[[str], None]
    group_soon: Callable[[str], None]
    pod: Callable[[str], None]
    all: Callable[[], None]


class Watches:
    """The informers of host_manager. ``places``: the namespaces it is confined to, none for all of the cluster."""

    def __init__(self, kube: Kube, known: Known, places: tuple[str, ...], wake: Wake) -> None:
        self._places = places
        # Who names namespaces wants groups there; one process for all services may run where nobody has any.
        optional = not places
        group, pod = on_group(known, wake.group), on_pod(known, wake.group_soon, wake.pod)
        workload, operator = on_workload(known, wake.group_soon), on_operator(known, known.operators, wake.all)
        self._groups: Informers[GroupView] = Informers(
            places,
            lambda place: Informer(
                kube, HOST_CONFIGS, view_group, group, place, optional=optional, objects=known.groups
            ),
        )
        self._pods: Informers[PodView] = Informers(
            places, lambda place: Informer(kube, PODS, view_pod, pod, place, POD_SELECTOR, objects=known.pods)
        )
        self._budgets: Informers[BudgetView] = Informers(
            places,
            lambda place: Informer(
                kube, BUDGETS, view_budget, lambda _: None, place, refusable=optional, objects=known.budgets
            ),
        )
        self._deployments: Informers[WorkloadView] = Informers(
            places,
            lambda place: Informer(
                kube, DEPLOYMENTS, view_workload, workload, place, POD_SELECTOR, objects=known.deployments
            ),
        )
        self._daemon_sets: Informers[WorkloadView] = Informers(
            places,
            lambda place: Informer(
                kube, DAEMON_SETS, view_workload, workload, place, POD_SELECTOR, objects=known.daemon_sets
            ),
        )
        # Not to be done without: what is not seen would be worked beside.
        self._operators: Informers[Controller | None] = Informers(
            places,
            lambda place: Informer(kube, DEPLOYMENTS, view_operator, operator, place, objects=known.operators),
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        for kind in self._kinds():
            yield from kind

    def covers(self, key: str) -> bool:
        """Say whether the namespace of an object (``namespace/name``) is watched."""
        return not self._places or key.partition("/")[0] in self._places

    def knows(self, key: str) -> bool:
        """Say whether the namespace of an object (``namespace/name``) was seen as a whole."""
        place = key.partition("/")[0]
        return all(kind.synced(place if self._places else None) for kind in self._kinds())

    @property
    def complete(self) -> bool:
        """Whether all groups and pods were seen."""
        return all(one.known for kind in (self._groups, self._pods) for one in kind)

    def _kinds(self) -> tuple[Informers[Any], ...]:
        return self._groups, self._pods, self._budgets, self._deployments, self._daemon_sets, self._operators
