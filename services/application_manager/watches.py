"""What application_manager watches: host groups, Applications, the operator that it replaces.

In: a client. Out: informers to run; their changes fill indexes, and put keys in the queues. Called by ``app`` and, in
the event loop, by the informers. Invariant: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from application_manager.domain.views import ApplicationView, view_application
from application_manager.gather import Key, Known
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import APPLICATIONS, DEPLOYMENTS, HOST_CONFIGS
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.group_views import GroupView, view_group
from trellis.lattice.wasmcloud_operator import on_operator, view_operator
from trellis.provisioning.other_controllers import Controller

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Enqueue:
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
        enqueue: Enqueue,
        needs_applications: Callable[[], str | None],
        timings: WatchTimings = WatchTimings(),
    ) -> None:
        self.groups = Informer(
            kube,
            HOST_CONFIGS,
            view_group,
            on_group(known, enqueue.application, enqueue.lattice),
            optional=True,
            needed=known.needs_groups,
            on_known=enqueue.all,
            timings=timings,
        )
        self.applications = Informer(
            kube,
            APPLICATIONS,
            view_application,
            on_application(known, enqueue.application),
            optional=True,
            needed=needs_applications,
            on_known=enqueue.all,
            timings=timings,
            objects=known.applications,
        )
        operators: dict[str, Controller | None] = {}
        self._operators = Informer(
            kube,
            DEPLOYMENTS,
            view_operator,
            on_operator(known, operators, enqueue.all),
            refusable=True,
            timings=timings,
            objects=operators,
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        yield from (self.groups, self.applications, self._operators)


def on_group(
    known: Known, wake: Callable[[Key], None], wake_lattice: Callable[[str], None]
) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of groups: which lattices there are, and where."""

    def handle(change: Change[GroupView]) -> None:
        views = [group for group in (change.old, change.new) if group is not None]
        for group in views:
            _drop(known.by_lattice, group.lattice, change.key)
            _drop(known.by_place, group.namespace, change.key)
        if change.new is not None and change.new.lattice:
            known.by_lattice.setdefault(change.new.lattice, {})[change.key] = change.new
            known.by_place.setdefault(change.new.namespace, {})[change.key] = change.new
        places = {group.namespace for group in views}
        beside = {one.lattice for place in places for one in known.by_place.get(place, {}).values()}
        for mark in ({group.lattice for group in views} | beside) - {""}:  # which of one name is meant may be another
            wake_lattice(mark)
        for view in known.applications.values():
            if view.namespace in places:
                wake(known.key_of(view))

    return handle


def on_application(known: Known, wake: Callable[[Key], None]) -> Callable[[Change[ApplicationView]], None]:
    """Return the handler of changes of Applications."""

    def handle(change: Change[ApplicationView]) -> None:
        old, new = change.old, change.new
        if old is not None:
            known.by_name.get(old.application, set()).discard(change.key)
            if not known.by_name.get(old.application):
                known.by_name.pop(old.application, None)
        if new is not None:
            known.by_name.setdefault(new.application, set()).add(change.key)
        if old is not None and (new is None or new.uid != old.uid):
            _gone(known, old)
        for key in {known.key_of(view) for view in (old, new) if view is not None}:
            wake(key)

    return handle


def _gone(known: Known, old: ApplicationView) -> None:
    """Note an object that is gone although wadm was not told."""
    if old.object.finalizer and old.uid not in known.let_go:
        known.forced[known.key_of(old)] = old
    known.let_go.discard(old.uid)


def _drop(index: dict[str, dict[str, V]], key: str, inner: str) -> None:
    found = index.get(key, {})
    found.pop(inner, None)
    if not found:
        index.pop(key, None)
