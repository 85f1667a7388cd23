"""The watches of application_manager: host groups, Applications, wasmcloud-operator.

In: a client. Out: informers to run; their changes fill indexes, and put keys in the queues. Called by ``app`` and, in
the event loop, by the informers. Invariant: a handler makes no decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from application_manager.cache import Cache
from application_manager.domain.views import ApplicationView, Key, view_application
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import APPLICATIONS, DEPLOYMENTS, HOST_CONFIGS
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.group_views import GroupView, view_group
from trellis.lattice.wasmcloud_operator import on_operator, view_operator
from trellis.provisioning.other_controllers import Controller


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Functions that enqueue the key of an application, the ID of a lattice, or all keys."""

    application: Callable[[Key], None]
    lattice: Callable[[str], None]
    all: Callable[[], None]


class Watches:
    """The informers. Both CRDs are optional: an installation may use only one of them."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        enqueue: Enqueue,
        timings: WatchTimings = WatchTimings(),
    ) -> None:
        self.groups = Informer(
            kube,
            HOST_CONFIGS,
            view_group,
            on_group(cache, enqueue.application, enqueue.lattice),
            optional=True,
            needed=cache.needs_groups,
            on_known=enqueue.all,
            timings=timings,
        )
        self.applications = Informer(
            kube,
            APPLICATIONS,
            view_application,
            on_application(cache, enqueue.application),
            optional=True,
            states=True,
            needed=cache.published.needs_applications,
            on_known=enqueue.all,
            timings=timings,
            objects=cache.applications,
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
        yield from (self.groups, self.applications, self._operators)


def on_group(
    cache: Cache, wake: Callable[[Key], None], wake_lattice: Callable[[str], None]
) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of host groups: it enqueues the affected lattices and applications."""

    def handle(change: Change[GroupView]) -> None:
        views = [group for group in (change.old, change.new) if group is not None]
        places = {group.namespace for group in views}
        objects = [view for view in cache.applications.values() if view.namespace in places]
        keys = {cache.key_of(view) for view in objects}
        cache.group_changed(change)
        beside = {item.lattice for place in places for item in cache.groups_in(place)}
        # The other lattices of the namespaces too: a name may resolve to another lattice now.
        for lattice_id in ({group.lattice for group in views} | beside) - {""}:
            wake_lattice(lattice_id)
        # Only a reconcile of the former key ends what an application waits for there, such as an outage of wadm.
        for key in keys | {cache.key_of(view) for view in objects}:
            wake(key)

    return handle


def on_application(cache: Cache, wake: Callable[[Key], None]) -> Callable[[Change[ApplicationView]], None]:
    """Return the handler of changes of Applications."""

    def handle(change: Change[ApplicationView]) -> None:
        cache.application_changed(change)
        for key in cache.keys_of_change(change):
            wake(key)

    return handle
