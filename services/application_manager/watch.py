"""What wakes application_manager from Kubernetes: groups of hosts, Applications, the operator that it replaces.

In: changes from the informers. Out: indexes, and keys in the queues. Called by the informers, in the event loop.
Invariant: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from application_manager.domain.views import ApplicationView
from application_manager.gather import Key, Known
from trellis.kube.informer import Change
from trellis.lattice.domain.group_views import GroupView

V = TypeVar("V")


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
