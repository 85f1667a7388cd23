"""What service_reflector watches.

In: a client. Out: informers to run, which fill what is known and wake keys. Called by ``app``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from service_reflector.gather import Known
from service_reflector.watch import ROUTE_SELECTOR, on_group, on_pod, on_route, on_service, on_slice
from trellis.kube.client import Kube
from trellis.kube.informer import Informer
from trellis.kube.resources import DEPLOYMENTS, ENDPOINT_SLICES, HOST_CONFIGS, HTTP_ROUTES, PODS, SERVICES
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.group_views import view_group
from trellis.lattice.domain.service_views import (
    POD_SELECTOR,
    SLICE_SELECTOR,
    view_pod,
    view_route,
    view_service,
    view_slice,
)
from trellis.lattice.wasmcloud_operator import on_operator, view_operator
from trellis.provisioning.other_controllers import Controller


@dataclass(frozen=True, slots=True)
class Wake:
    """What a change has run: an application's key, a lattice's mark, or all of them."""

    application: Callable[[str], None]
    lattice: Callable[[str], None]
    all: Callable[[], None]


class Watches:
    """The informers. Groups are optional: a cluster without lattices need not serve the kind.

    While it is not served, groups are unknown: ``why_groups`` returns what makes this service not ready then, if
    anything does, and everything runs once it is served.
    """

    def __init__(
        self,
        kube: Kube,
        known: Known,
        wake: Wake,
        why_groups: Callable[[], str | None],
        timings: WatchTimings = WatchTimings(),
    ) -> None:
        def groups_served() -> None:
            known.missing_since.clear()
            wake.all()

        self.groups = Informer(
            kube,
            HOST_CONFIGS,
            view_group,
            on_group(known, wake.lattice),
            optional=True,
            needed=why_groups,
            on_known=groups_served,
            timings=timings,
            objects=known.groups,
        )
        self._pods = Informer(
            kube, PODS, view_pod, on_pod(known, wake.application), label_selector=POD_SELECTOR, timings=timings
        )
        self.services = Informer(
            kube, SERVICES, view_service, on_service(known, wake.application), timings=timings, objects=known.services
        )
        self.slices = Informer(
            kube,
            ENDPOINT_SLICES,
            view_slice,
            on_slice(known, wake.application),
            label_selector=SLICE_SELECTOR,
            timings=timings,
        )
        # Gateways are an addition to a cluster, and the right to write routes is one to an installation.
        self.routes = Informer(
            kube,
            HTTP_ROUTES,
            view_route,
            on_route(known, wake.application),
            label_selector=ROUTE_SELECTOR,
            optional=True,
            refusable=True,
            on_known=wake.all,
            timings=timings,
            objects=known.routes,
        )
        operators: dict[str, Controller | None] = {}
        self._operators = Informer(
            kube,
            DEPLOYMENTS,
            view_operator,
            on_operator(known, operators, wake.all),
            refusable=True,
            timings=timings,
            objects=operators,
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        yield from (self.groups, self._pods, self.services, self.slices, self.routes, self._operators)
