"""What application_manager watches.

In: a client. Out: informers to run, and their objects. Called by ``app``, which binds what is called on a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from application_manager.domain.views import ApplicationView, view_application
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import APPLICATIONS, DEPLOYMENTS, HOST_CONFIGS
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.group_views import GroupView, view_group
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
    """The informers. Both kinds are optional: an installation may use one of them alone."""

    def __init__(self, kube: Kube, timings: WatchTimings = WatchTimings()) -> None:
        self.on_group: Handler[GroupView] = Handler()
        self.on_application: Handler[ApplicationView] = Handler()
        self.on_operator: Handler[Controller | None] = Handler()
        self.groups = Informer(kube, HOST_CONFIGS, view_group, self.on_group, timings=timings, optional=True)
        self.applications = Informer(
            kube, APPLICATIONS, view_application, self.on_application, timings=timings, optional=True
        )
        self.operators = Informer(kube, DEPLOYMENTS, view_operator, self.on_operator, timings=timings, refusable=True)

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        yield from (self.groups, self.applications, self.operators)
