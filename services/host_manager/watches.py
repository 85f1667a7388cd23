"""What host_manager watches: of each kind all namespaces, or each of those that it is confined to.

In: a client, namespaces, what to call. Out: informers to run, and their objects. Called by ``app``. Invariant: what is
not known of a namespace yet is no reason to do anything in it; it is none to do nothing in the others either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from host_manager.domain.pods import PodView, view_pod
from host_manager.domain.views import BudgetView, GroupView, view_budget, view_group
from host_manager.watch import POD_SELECTOR, WorkloadView, view_workload
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.informers import Informers
from trellis.kube.resources import BUDGETS, DAEMON_SETS, DEPLOYMENTS, HOST_CONFIGS, PODS
from trellis.lattice.wasmcloud_operator import view_operator
from trellis.provisioning.other_controllers import Controller

T = TypeVar("T")


@dataclass(slots=True)
class Handler(Generic[T]):
    """What is called on a change; bound once there is something to call."""

    call: Callable[[Change[T]], None] = field(default=lambda _: None)

    def __call__(self, change: Change[T]) -> None:
        """Pass a change on."""
        self.call(change)


class Watches:
    """The informers of host_manager. ``places``: the namespaces it is confined to, none for all of the cluster."""

    def __init__(self, kube: Kube, places: tuple[str, ...]) -> None:
        self.on_group: Handler[GroupView] = Handler()
        self.on_pod: Handler[PodView] = Handler()
        self.on_workload: Handler[WorkloadView] = Handler()
        self.on_operator: Handler[Controller | None] = Handler()
        self._places = places
        # Who names namespaces wants groups there; one process for all services may run where nobody has any.
        optional = not places
        self.groups: Informers[GroupView] = Informers(
            places, lambda place: Informer(kube, HOST_CONFIGS, view_group, self.on_group, place, optional=optional)
        )
        self.pods: Informers[PodView] = Informers(
            places, lambda place: Informer(kube, PODS, view_pod, self.on_pod, place, POD_SELECTOR)
        )
        self.budgets: Informers[BudgetView] = Informers(
            places, lambda place: Informer(kube, BUDGETS, view_budget, lambda _: None, place, refusable=optional)
        )
        self.deployments: Informers[WorkloadView] = Informers(
            places, lambda place: Informer(kube, DEPLOYMENTS, view_workload, self.on_workload, place, POD_SELECTOR)
        )
        self.daemon_sets: Informers[WorkloadView] = Informers(
            places, lambda place: Informer(kube, DAEMON_SETS, view_workload, self.on_workload, place, POD_SELECTOR)
        )
        # Not to be done without: what is not seen would be worked beside.
        self.operators: Informers[Controller | None] = Informers(
            places, lambda place: Informer(kube, DEPLOYMENTS, view_operator, self.on_operator, place)
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
        return all(one.known for kind in (self.groups, self.pods) for one in kind)

    def _kinds(self) -> tuple[Informers[Any], ...]:
        return self.groups, self.pods, self.budgets, self.deployments, self.daemon_sets, self.operators
