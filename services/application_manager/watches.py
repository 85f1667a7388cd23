"""What application_manager watches.

In: a client. Out: informers to run, which fill what is known and wake keys. Called by ``app``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from application_manager.domain.views import view_application
from application_manager.gather import Key, Known
from application_manager.watch import on_application, on_group
from trellis.kube.client import Kube
from trellis.kube.informer import Informer
from trellis.kube.resources import APPLICATIONS, DEPLOYMENTS, HOST_CONFIGS
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.group_views import view_group
from trellis.lattice.wasmcloud_operator import on_operator, view_operator
from trellis.provisioning.other_controllers import Controller


@dataclass(frozen=True, slots=True)
class Wake:
    """What a change has run: the key of an application, the mark of a lattice, or all of them."""

    application: Callable[[Key], None]
    lattice: Callable[[str], None]
    all: Callable[[], None]


class Watches:
    """The informers. Both kinds are optional: an installation may use one of them alone.

    ``needs_applications`` returns why Applications have to be listed, None if nothing names one.
    """

    def __init__(
        self,
        kube: Kube,
        known: Known,
        wake: Wake,
        needs_applications: Callable[[], str | None],
        timings: WatchTimings = WatchTimings(),
    ) -> None:
        self.groups = Informer(
            kube,
            HOST_CONFIGS,
            view_group,
            on_group(known, wake.application, wake.lattice),
            optional=True,
            needed=known.needs_groups,
            on_known=wake.all,
            timings=timings,
        )
        self.applications = Informer(
            kube,
            APPLICATIONS,
            view_application,
            on_application(known, wake.application),
            optional=True,
            needed=needs_applications,
            on_known=wake.all,
            timings=timings,
            objects=known.applications,
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
        yield from (self.groups, self.applications, self._operators)
