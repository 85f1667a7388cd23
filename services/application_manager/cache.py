"""The cache of application_manager for one leadership term: all state that outlives a reconcile.

In: changes from informers (``watches``); observations, decisions, requests and writes of reconciles (``reconciler``,
``apply``). Out: reads for ``gather``, ``freshness`` and ``metrics``. Invariants: only the methods here change it,
except for ``applications``, which its informer fills, and ``followers``, which reads the lattices; loss of the cache
only repeats work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from application_manager.domain.progress import SETTLED, Progress
from application_manager.domain.published_events import Published
from application_manager.domain.views import ApplicationView, Key, lattice_of
from application_manager.lattice_followers import LatticeFollowers
from trellis.kube.informer import Change
from trellis.lattice.domain.digests import Digests
from trellis.lattice.domain.group_views import GroupView, lattice_name
from trellis.lattice.domain.store import StoredModel
from trellis.provisioning.other_controllers import Controller

V = TypeVar("V")


@dataclass(slots=True)
class Cache:
    """``applications``: objects by ``namespace/name``. ``followers``: the lattices, with the state of wadm.

    ``controller``: wasmcloud-operator, while it is active. ``published``: the events on the bus for each object.
    """

    applications: dict[str, ApplicationView]
    followers: LatticeFollowers
    controller: Controller | None = None
    published: Published = field(default_factory=Published)
    _groups_by_lattice: dict[str, dict[str, GroupView]] = field(default_factory=dict)
    _groups_by_namespace: dict[str, dict[str, GroupView]] = field(default_factory=dict)
    _objects_by_application: dict[str, set[str]] = field(default_factory=dict)
    _released: set[str] = field(default_factory=set)
    """Uids of objects whose finalizer Trellis removed; their deletion is not an action of a user."""
    _reported: dict[str, str] = field(default_factory=dict)
    """By uid, the resourceVersion of a status that a reconcile wrote, until its change arrives."""
    _progress: dict[Key, Progress] = field(default_factory=dict)
    _digests: dict[str, Digests] = field(default_factory=dict)
    _unavailable_since: dict[str, float] = field(default_factory=dict)

    # Changes from watches.

    def group_changed(self, change: Change[GroupView]) -> None:
        """Record a change of a host group."""
        for group in (change.old, change.new):
            if group is not None:
                _drop(self._groups_by_lattice, group.lattice, change.key)
                _drop(self._groups_by_namespace, group.namespace, change.key)
        if change.new is not None and change.new.lattice:
            self._groups_by_lattice.setdefault(change.new.lattice, {})[change.key] = change.new
            self._groups_by_namespace.setdefault(change.new.namespace, {})[change.key] = change.new

    def application_changed(self, change: Change[ApplicationView]) -> None:
        """Record a change of an Application, and detect that a user removed the finalizer from a deleted one.

        Without the finalizer of Trellis, the object may remain while it has other finalizers.
        """
        old, new = change.old, change.new
        if old is not None:
            found = self._objects_by_application.get(old.application, set())
            found.discard(change.key)
            if not found:
                self._objects_by_application.pop(old.application, None)
        if new is not None:
            self._objects_by_application.setdefault(new.application, set()).add(change.key)
        if old is None:
            return
        same = new if new is not None and new.uid == old.uid else None
        lost = old.object.finalizer and (same is None or (same.object.deleting and not same.object.finalizer))
        if lost and old.uid not in self._released:
            self.advance(self.key_of(old), lambda progress: progress.removed_by_user(old))
        if same is None or (same.object.finalizer and not old.object.finalizer):  # deleted, or the finalizer is back
            self._released.discard(old.uid)

    def keys_of_change(self, change: Change[ApplicationView]) -> set[Key]:
        """Return the keys to reconcile after a change of an Application: none after its own report on the status.

        The status is computed from the state that the reconcile decided on, so that a further run has nothing to do,
        unless the reported lattice makes it the object of another key.
        """
        views = [view for view in (change.old, change.new) if view is not None]
        keys = {self.key_of(view) for view in views}
        reported = self._reported.pop(views[-1].uid, None)
        return set() if change.new is not None and reported == change.new.resource_version and len(keys) == 1 else keys

    # Changes from reconciles.

    def reported(self, uid: str, resource_version: str) -> None:
        """Record the version of an object that has the status of a reconcile."""
        self._reported[uid] = resource_version

    def advance(self, key: Key, step: Callable[[Progress], Progress]) -> Progress:
        """Apply a transition of ``Progress`` to the progress of an application; return the new progress."""
        progress = step(self.progress(key))
        if progress == SETTLED:
            self._progress.pop(key, None)
        else:
            self._progress[key] = progress
        return progress

    def releasing(self, uid: str) -> None:
        """Record that Trellis is about to remove its finalizer from an object."""
        self._released.add(uid)

    def not_released(self, uid: str) -> None:
        """Record that the API server rejected the removal of the finalizer."""
        self._released.discard(uid)

    def end_outage(self, lattice_id: str) -> None:
        """Record that a lattice answers, or that no host group names it."""
        self._unavailable_since.pop(lattice_id, None)

    def unavailable(self, lattice_id: str, now: float) -> float:
        """Record that a lattice does not answer; return the start of the outage in monotonic seconds."""
        return self._unavailable_since.setdefault(lattice_id, now)

    def deleted(self, key: Key) -> None:
        """Record that an application no longer exists on either side."""
        self.advance(key, Progress.deleted)
        if (digests := self._digests.get(key.lattice_id)) is not None:
            digests.forget(key.name)

    # Reads.

    def progress(self, key: Key) -> Progress:
        """Return the progress of an application."""
        return self._progress.get(key, SETTLED)

    def versions_of(self, lattice_id: str, model: StoredModel) -> tuple[tuple[str, str], ...]:
        """Return version and digest of each version in wadm, the oldest first; each digest is computed once."""
        return self._digests.setdefault(lattice_id, Digests()).of(model)

    @property
    def lattice_ids(self) -> set[str]:
        """The lattices that groups name, and those that are followed."""
        return {*self._groups_by_lattice, *self.followers.lattice_ids}

    def groups_of(self, lattice_id: str) -> Mapping[str, GroupView]:
        """Return the host groups of a lattice."""
        return self._groups_by_lattice.get(lattice_id, {})

    def groups_to_follow(self, lattice_id: str) -> Iterable[GroupView]:
        """Return the host groups of a lattice to follow: none while wasmcloud-operator is active."""
        return () if self.controller is not None else self.groups_of(lattice_id).values()

    def groups_in(self, namespace: str) -> Iterable[GroupView]:
        """Return the host groups of a namespace."""
        return self._groups_by_namespace.get(namespace, {}).values()

    def means(self, namespace: str, lattice_id: str) -> bool:
        """Return whether the lattice name, in objects of this namespace, resolves to this lattice."""
        return lattice_of(self.groups_in(namespace), lattice_name(lattice_id), "") == lattice_id

    def key_of(self, view: ApplicationView) -> Key:
        """Return the key of an object."""
        lattice_id = lattice_of(self.groups_in(view.namespace), view.lattice, view.shown)
        return Key(lattice_id, view.application) if lattice_id else Key("", view.key)

    def keys_of(self, lattice_id: str, applications: Iterable[str] | None) -> Iterator[Key]:
        """Yield the keys that a change of these applications affects; None: all applications of the lattice."""
        if applications is not None:
            yield from (Key(lattice_id, name) for name in applications)
            return
        store = self.followers.store(lattice_id)
        yield from (Key(lattice_id, name) for name in (store.names() if store is not None else ()))
        namespaces = {group.namespace for group in self.groups_of(lattice_id).values()}
        yield from (self.key_of(view) for view in self.applications.values() if view.namespace in namespaces)

    def all_keys(self) -> set[Key]:
        """Return the keys of all objects and of all applications in wadm."""
        keys = {self.key_of(view) for view in self.applications.values()}
        for lattice_id, store in self.followers.stores.items():
            keys |= {Key(lattice_id, name) for name in store.names()}
        return keys

    def objects_of(self, key: Key) -> list[ApplicationView]:
        """Return the objects of an application, the oldest first."""
        places = [key.name] if not key.lattice_id else self._objects_by_application.get(key.name, ())
        found = [self.applications[place] for place in places if place in self.applications]
        return sorted(
            (view for view in found if self.key_of(view) == key),
            key=lambda view: (view.created, view.namespace, view.name),
        )

    def needs_groups(self) -> str | None:
        """Return why host groups have to be listed: an object has the finalizer; None if no object does."""
        kept = (application.key for application in self.applications.values() if application.object.finalizer)
        first = min(kept, default=None)
        return None if first is None else f"Application {first} belongs to a lattice: no Application is changed"


def _drop(index: dict[str, dict[str, V]], key: str, inner: str) -> None:
    found = index.get(key, {})
    found.pop(inner, None)
    if not found:
        index.pop(key, None)
