"""Reads the snapshot for the decision about a key, and changes nothing.

In: ``cache``, with the state of informers and lattices; the tombstones. Out: a frozen snapshot, and its progress.
Called by ``reconciler``. Invariant: unknown state of a lattice never counts as absent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from application_manager.cache import Cache
from application_manager.domain.progress import State
from application_manager.domain.sides import Absence, Model, Standing
from application_manager.domain.snapshot import Duty, Snapshot
from application_manager.domain.views import Key, home_of, no_lattice_message
from application_manager.timings import Timings
from application_manager.tombstones import Tombstones
from trellis.kube.client import Kube
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.store import AbsenceReason, ModelStore

_ABSENCES: Final = {
    AbsenceReason.DELETED: Absence.DELETED,
    AbsenceReason.LOST: Absence.LOST,
    AbsenceReason.UNKNOWN: Absence.LOST,
}
"""A model whose deletion is not in the storage counts as lost, and is stored in wadm again."""
_BEFORE_TOMBSTONES: Final = (State.FINALIZER_REMOVED, State.AWAITED)
"""States in which no object is created, so that tombstones are irrelevant."""


@dataclass(frozen=True, slots=True)
class Gather:
    """``groups_known``, ``applications_known``: whether the API server serves the CRD, so that a missing object does
    not exist. ``remove_finalizers``: this process only removes finalizers.
    """

    kube: Kube
    cache: Cache
    tombstones: Tombstones
    groups_known: Callable[[], bool]
    applications_known: Callable[[], bool]
    remove_finalizers: bool = False
    timings: Timings = Timings()

    async def snapshot(self, key: Key) -> Snapshot:
        """Return all inputs of a decision about one application.

        Raises:
            KubeError: the tombstones cannot be read.
        """
        found = self._snapshot(key, tombstone=False)
        model = found.model
        if found.view is not None or model is None or found.progress.state in _BEFORE_TOMBSTONES:
            return found
        store = self.cache.followers.store(key.lattice_id)
        bucket = store.bucket if store is not None else ""
        buried = await self.tombstones.holds(lattice_name(key.lattice_id), key.name, bucket, model.revision)
        return self._snapshot(key, tombstone=buried)  # the cache may have changed during the read

    def _snapshot(self, key: Key, *, tombstone: bool) -> Snapshot:
        objects = self.cache.objects_of(key)
        view = objects[0] if objects else None
        found = Snapshot(
            object=view.object if view is not None else None,
            wadm=Absence.UNAVAILABLE,
            now=self.kube.now(),
            tombstone=tombstone,
            progress=self.cache.progress(key),
            monotonic=time.monotonic(),
            timings=self.timings,
            duty=self._duty(),
            key=key,
            view=view,
            others=tuple(objects[1:]),
        )
        return found if found.duty is not Duty.RECONCILE else self._with_lattice(found)

    def _duty(self) -> Duty:
        if self.remove_finalizers:
            return Duty.REMOVE_FINALIZERS
        unable = self.cache.controller is not None or not self.applications_known()
        return Duty.STAND_BY if unable else Duty.RECONCILE

    def _with_lattice(self, found: Snapshot) -> Snapshot:
        """Return a snapshot with the application's lattice, as far as it is known."""
        key, view = found.key, found.view
        nothing_awaited = found.progress.storage_read(None, answered=False, now=found.monotonic)
        if not self.groups_known():
            reason = "host groups cannot be listed: the application's lattice is not known"
            return replace(found, progress=nothing_awaited, reason=reason)
        groups = self.cache.groups_of(key.lattice_id).values() if key.lattice_id else ()
        home = home_of(group for group in groups if self.cache.means(group.namespace, key.lattice_id))
        if not groups or (view is None and not home):
            reason = (
                ""
                if view is None
                else no_lattice_message(self.cache.groups_in(view.namespace), view.lattice, view.shown)
            )
            return replace(found, standing=Standing.NO_LATTICE, progress=nothing_awaited, reason=reason)
        # While the owner of the lattice is unknown, wadm counts as unavailable: no finalizer is removed on a guess.
        followers = self.cache.followers
        others = followers.owner(key.lattice_id) is not None and not followers.owns(key.lattice_id)
        found = replace(found, standing=Standing.OWNED_BY_OTHER if others else Standing.OWNED, home=home)
        return self._with_wadm(found, followers.store(key.lattice_id))

    def _with_wadm(self, found: Snapshot, store: ModelStore | None) -> Snapshot:
        """Return a snapshot with the state of wadm, and the progress that follows from it."""
        key, now = found.key, found.monotonic
        base = found.object.base if found.object is not None else None
        model = store.find(key.name) if store is not None else None
        answers = self._answering(key, store)
        progress = found.progress.storage_read(model, answered=answers is not None, now=now)
        wadm: Model | Absence
        if answers is None or model is None:
            wadm = Absence.UNAVAILABLE if answers is None else _ABSENCES[answers.absence(key.name)]
        else:
            progress = progress.list_read(listed=answers.listed(key.name), now=now)
            # A bucket whose age cannot be read counts as the recorded bucket.
            bucket = answers.bucket or (base.bucket if base is not None else "")
            may_be_listed = progress.unlisted_since is None or progress.listing_due(now, self.timings) is not None
            versions = self.cache.versions_of(key.lattice_id, model)
            wadm = Model(versions, model.deployed, bucket, may_be_listed, model.revision)
        return replace(
            found,
            wadm=wadm,
            progress=progress.newest_read(wadm if isinstance(wadm, Model) else None, base, now),
            model=model,
            wadm_status=store.status(key.name) if store is not None else None,
            reason=_unavailable_reason(store) if answers is None else "",
        )

    def _answering(self, key: Key, store: ModelStore | None) -> ModelStore | None:
        """Return the storage of a lattice if it is up to date and the owner of the lattice is known, else None."""
        if (
            store is None
            or store.synced_at is None
            or store.unavailable
            or self.cache.followers.owner(key.lattice_id) is None
        ):
            return None
        return store


def _unavailable_reason(store: ModelStore | None) -> str:
    if store is None:
        return "application_manager is not connected to the lattice yet"
    if store.synced_at is None:
        return f"the state of wadm is unknown: {store.reason}"
    if store.unavailable:
        return f"wadm does not answer, so its last report may be outdated: {store.unavailable}"
    return "the cluster that owns its lattice's applications is not known yet"
