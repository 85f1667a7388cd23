"""What service_reflector watches.

In: a client. Out: informers to run, and their objects. Called by ``app``, which binds what is called on a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from service_reflector.watch import ROUTE_SELECTOR
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import DEPLOYMENTS, ENDPOINT_SLICES, HOST_CONFIGS, HTTP_ROUTES, PODS, SERVICES
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.group_views import GroupView, view_group
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
    """The informers. Groups are optional: a cluster without lattices need not serve the kind.

    While it is not served, groups are unknown: ``app`` binds what makes this service not ready, and what follows.
    """

    def __init__(self, kube: Kube, timings: WatchTimings = WatchTimings()) -> None:
        self.on_group: Handler[GroupView] = Handler()
        self.on_pod: Handler[PodView] = Handler()
        self.on_service: Handler[ServiceView] = Handler()
        self.on_slice: Handler[SliceView] = Handler()
        self.on_route: Handler[RouteView] = Handler()
        self.on_operator: Handler[Controller | None] = Handler()
        self.groups = Informer(kube, HOST_CONFIGS, view_group, self.on_group, timings=timings, optional=True)
        self.pods = Informer(kube, PODS, view_pod, self.on_pod, label_selector=POD_SELECTOR, timings=timings)
        self.services = Informer(kube, SERVICES, view_service, self.on_service, timings=timings)
        self.slices = Informer(
            kube, ENDPOINT_SLICES, view_slice, self.on_slice, label_selector=SLICE_SELECTOR, timings=timings
        )
        # Gateways are an addition to a cluster, and the right to write routes is one to an installation.
        self.routes = Informer(
            kube,
            HTTP_ROUTES,
            view_route,
            self.on_route,
            label_selector=ROUTE_SELECTOR,
            timings=timings,
            optional=True,
            refusable=True,
        )
        self.operators = Informer(kube, DEPLOYMENTS, view_operator, self.on_operator, timings=timings, refusable=True)

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        yield from (self.groups, self.pods, self.services, self.slices, self.routes, self.operators)
