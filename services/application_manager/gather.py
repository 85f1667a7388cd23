"""What application_manager knows: groups and Applications by their informers, models by the stores of their lattices.

In: views and stores. Out: all that a decision about one application depends on, and which keys a change concerns.
Called by ``app``, ``watches`` and ``lattices``. A key is a lattice's mark and an application's name in wadm; an object
without a lattice has one of its own. Invariants: what is not known of a lattice is not taken for not being there; a
store that does not show our own writes yet is not decided on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from application_manager.domain.actions import Lost
from application_manager.domain.conditions import Refused
from application_manager.domain.placement import home_of, lattice_of, name_of, why_none
from application_manager.domain.snapshot import Absence, Model, Side, Snapshot, Standing
from application_manager.domain.views import ApplicationView
from application_manager.following import Following
from application_manager.timings import Timings
from trellis.kube.client import Kube
from trellis.lattice.domain.digests import Digests
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import ModelStore, Proof, StoredModel
from trellis.provisioning.other_controllers import Controller

_ABSENCES: Final = {Proof.GONE: Absence.GONE, Proof.LOST: Absence.LOST, Proof.UNKNOWN: Absence.LOST}
"""What is not proved to be deleted is put again: nothing is destroyed on silence."""


class Key(NamedTuple):
    """An application of a lattice; ``mark`` is "" for an object without one, and ``name`` then ``namespace/name``."""

    mark: str
    name: str

    def __str__(self) -> str:
        """Return it for people."""
        return f"{name_of(self.mark)}/{self.name}" if self.mark else self.name


@dataclass(frozen=True, slots=True)
class Awaited:
    """What wadm acknowledged: a store that shows it is new enough. None is what was not touched."""

    version: str | None
    deployed: str | None
    gone: bool
    until: float

    def shown_by(self, model: StoredModel | None) -> bool:
        """Say whether a store shows it."""
        if self.gone or model is None:
            return self.gone and model is None
        has = self.version is None or any(version == self.version for version, _ in model.versions)
        return has and self.deployed in {None, model.deployed}


@dataclass(frozen=True, slots=True)
class World:
    """One application. ``others``: objects that name the same, and come after ``view``."""

    key: Key
    view: ApplicationView | None
    others: tuple[ApplicationView, ...]
    snapshot: Snapshot
    model: StoredModel | None = None
    said: Status | None = None
    bucket: str = ""
    home: str = ""
    why: str = ""


@dataclass(slots=True)
class Known:
    """What is remembered during a term.

    ``forced``: objects whose finalizer somebody else took; ``let_go``: uids of those from which we took it ourselves.
    ``away``: since when wadm does not answer, monotonic seconds. ``awaited``, ``refused``, ``won`` and ``lost``: of
    what is being carried over; losing them costs a repetition. ``told``: which version wadm was told to run since the
    base was recorded. ``put``: the newest version, and since when it was seen to be, monotonic seconds (ADR 81).
    ``unlisted``: since when wadm stores an application without listing it, monotonic seconds: wadm may still write its
    list for ``timings.unlisted``. ``groups_known``, ``applications_known``: whether the API server serves the kind, so
    that what is not among its objects does not exist.
    """

    kube: Kube
    applications: dict[str, ApplicationView]
    following: Following
    by_lattice: dict[str, dict[str, GroupView]] = field(default_factory=dict)
    by_place: dict[str, dict[str, GroupView]] = field(default_factory=dict)
    by_name: dict[str, set[str]] = field(default_factory=dict)
    controller: Controller | None = None
    forced: dict[Key, ApplicationView] = field(default_factory=dict)
    let_go: set[str] = field(default_factory=set)
    awaited: dict[Key, Awaited] = field(default_factory=dict)
    refused: dict[Key, Refused] = field(default_factory=dict)
    away: dict[Key, float] = field(default_factory=dict)
    won: dict[Key, Side] = field(default_factory=dict)
    lost: dict[Key, Lost] = field(default_factory=dict)
    told: dict[Key, str] = field(default_factory=dict)
    put: dict[Key, tuple[str, float]] = field(default_factory=dict)
    unlisted: dict[Key, float] = field(default_factory=dict)
    timings: Timings = Timings()
    groups_known: Callable[[], bool] = lambda: True
    applications_known: Callable[[], bool] = lambda: True
    digests: dict[str, Digests] = field(default_factory=dict)

    def key_of(self, view: ApplicationView) -> Key:
        """Return the key of an object."""
        groups = self.by_place.get(view.namespace, {}).values()
        mark = lattice_of(groups, view.lattice, view.shown)
        return Key(mark, view.application) if mark else Key("", view.key)

    def means(self, namespace: str, mark: str) -> bool:
        """Say whether an object of a namespace that names a lattice means this one, and no other of that name."""
        return lattice_of(self.by_place.get(namespace, {}).values(), name_of(mark), "") == mark

    def groups_of(self, mark: str) -> Iterable[GroupView]:
        """Return the groups of a lattice that is to be followed: none while another operator is in charge."""
        return () if self.controller is not None else self.by_lattice.get(mark, {}).values()

    def keys_of(self, mark: str, applications: Iterable[str] | None) -> Iterator[Key]:
        """Yield the keys that news of applications concern; None is every one of the lattice."""
        if applications is not None:
            yield from (Key(mark, name) for name in applications)
            return
        store = self.following.store(mark)
        yield from (Key(mark, name) for name in (store.names() if store is not None else ()))
        places = {group.namespace for group in self.by_lattice.get(mark, {}).values()}
        yield from (self.key_of(view) for view in self.applications.values() if view.namespace in places)

    def needs_groups(self) -> str | None:
        """Return why host groups have to be listed: an object names the lattice that it is in; None if none does."""
        kept = (one.key for one in self.applications.values() if one.object.finalizer)
        first = min(kept, default=None)
        return None if first is None else f"Application {first} belongs to a lattice: no Application is changed"

    def all_keys(self) -> set[Key]:
        """Return every key there is something to decide about."""
        keys = {self.key_of(view) for view in self.applications.values()}
        for mark, store in self.following.stores.items():
            keys |= {Key(mark, name) for name in store.names()}
        return keys

    def objects_of(self, key: Key) -> list[ApplicationView]:
        """Return the objects that are an application, the oldest first."""
        if not key.mark:
            found = [view for view in (self.applications.get(key.name),) if view is not None]
        else:
            found = [self.applications[one] for one in self.by_name.get(key.name, ()) if one in self.applications]
        return sorted(
            (view for view in found if self.key_of(view) == key),
            key=lambda view: (view.created, view.namespace, view.name),
        )

    def world(self, key: Key, *, tombstone: bool = False) -> World:
        """Return all that a decision about one application depends on."""
        found = self.objects_of(key)
        view = found[0] if found else None
        now, obj = self.kube.now(), view.object if view is not None else None
        if not self.groups_known():
            why = "host groups cannot be listed: the application's lattice is not known"
            return World(key, view, tuple(found[1:]), Snapshot(obj, Absence.AWAY, now=now), why=why)
        if not key.mark or key.mark not in self.by_lattice:
            snapshot = Snapshot(obj, Absence.AWAY, Standing.NO_LATTICE, now)
            return World(key, view, tuple(found[1:]), snapshot, why=self._why_none(view))
        home = home_of(group for group in self.by_lattice[key.mark].values() if self.means(group.namespace, key.mark))
        if view is None and not home:
            return World(key, None, (), Snapshot(None, Absence.AWAY, Standing.NO_LATTICE, now))
        store = self.following.store(key.mark)
        model = store.find(key.name) if store is not None else None
        wadm = self._wadm(key, store, model, view)
        # While it is not known who keeps the lattice, wadm counts as away: nobody is let go for another's sake.
        others = self.following.owner(key.mark) is not None and not self.following.ours(key.mark)
        standing = Standing.OTHERS if others else Standing.OURS
        return World(
            key,
            view,
            tuple(found[1:]),
            Snapshot(
                *(obj, wadm, standing, now, tombstone, self.told.get(key)),
                unsettled=self._unsettled(key, wadm, view),
                contest=self.timings.contest,
            ),
            model,
            store.status(key.name) if store is not None else None,
            store.bucket if store is not None else "",
            home,
            _why_away(store) if wadm is Absence.AWAY else "",
        )

    def awaits(self, world: World) -> float | None:
        """Return how many seconds to wait for a store to show our own writes, None if there is nothing to wait for."""
        awaited = self.awaited.get(world.key)
        if awaited is None:
            return None
        left = awaited.until - time.monotonic()
        if left <= 0 or awaited.shown_by(world.model) or world.snapshot.wadm is Absence.AWAY:
            del self.awaited[world.key]
            if world.model is not None and world.model.deployed != self.told.get(world.key):
                self.told.pop(world.key, None)  # somebody else has told it something
            return None
        return left

    def forget(self, key: Key) -> None:
        """Forget what was remembered of an application that is on neither side."""
        for held in (self.awaited, self.refused, self.away, self.won, self.lost, self.told, self.put, self.unlisted):
            held.pop(key, None)
        if (digests := self.digests.get(key.mark)) is not None:
            digests.forget(key.name)

    def _wadm(
        self, key: Key, store: ModelStore | None, model: StoredModel | None, view: ApplicationView | None
    ) -> Model | Absence:
        if store is None or store.synced_at is None or store.silent or self.following.owner(key.mark) is None:
            return Absence.AWAY
        if model is None:
            return _ABSENCES[store.absence(key.name)]
        base = view.object.base if view is not None else None
        # A bucket whose age cannot be read is taken for the one that it was.
        bucket = store.bucket or (base.bucket if base is not None else "")
        digests = self.digests.setdefault(key.mark, Digests())
        return Model(digests.of(model), model.deployed, bucket, self._listed(key, store), model.revision)

    def _listed(self, key: Key, store: ModelStore) -> bool:
        """Return whether wadm lists an application that it stores, or may still be about to."""
        if store.listed(key.name):
            self.unlisted.pop(key, None)
            return True
        now = time.monotonic()
        return now - self.unlisted.setdefault(key, now) < self.timings.unlisted

    def listing_due(self, key: Key) -> float | None:
        """Return the seconds left for wadm to list an application that it stores; None if none are, or it is listed."""
        left = self.unlisted.get(key, 0.0) + self.timings.unlisted - time.monotonic()
        return left if left > 0 else None

    def _unsettled(self, key: Key, wadm: Model | Absence, view: ApplicationView | None) -> float:
        """Return for how many seconds a version that was put beside the one that runs may still be deployed."""
        base = view.object.base if view is not None else None
        if not isinstance(wadm, Model) or wadm.newest in {wadm.deployed, base.newest if base is not None else ""}:
            self.put.pop(key, None)
            return 0.0
        now = time.monotonic()
        newest, since = self.put.get(key, ("", now))
        if newest != wadm.newest:
            since = now
        self.put[key] = (wadm.newest, since)
        return max(0.0, since + self.timings.settle - now)

    def _why_none(self, view: ApplicationView | None) -> str:
        if view is None:
            return ""
        return why_none(self.by_place.get(view.namespace, {}).values(), view.lattice, view.shown)


def _why_away(store: ModelStore | None) -> str:
    if store is None:
        return "its lattice is not followed yet"
    if store.synced_at is None:
        return f"what wadm has is not known: {store.why}"
    if store.silent:
        return f"wadm does not answer, so what it last said may be old: {store.silent}"
    return "it is not known yet which cluster keeps its lattice's applications"
