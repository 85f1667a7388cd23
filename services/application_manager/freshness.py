"""Reports on each host group whether the applications of its lattice are in sync with wadm.

In: IDs of lattices. Out: the condition ``ApplicationsSynced`` of host groups. Called by ``app``, for its own queue.
Invariants: the part of host_manager in the status is unchanged; an outage of some seconds causes no write.
Source: ADR 0041, rule 7.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from application_manager.cache import Cache
from application_manager.timings import Timings
from trellis import names
from trellis.crds.conditions import make_condition
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.permissions import MissingPermissions
from trellis.kube.resources import HOST_CONFIGS, Manifest
from trellis.lattice.domain.group_views import GroupView, lattice_name
from trellis.lattice.domain.store import ModelStore
from trellis.telemetry import TraceContext


class Verdict(NamedTuple):
    """Status, reason and message of the condition."""

    status: str
    reason: str
    message: str


def verdict_of(store: ModelStore | None, owner: str | None, *, owned: bool) -> Verdict:
    """Return the condition for a lattice; ``owner``: the cluster that owns its applications, None while unknown."""
    if store is None:
        return Verdict("Unknown", "NotFollowed", "application_manager is not connected to the lattice yet")
    if store.synced_at is None:
        return Verdict("Unknown", "WadmUnavailable", f"the applications shown may be outdated: {store.reason}")
    if store.unavailable:
        return Verdict("Unknown", "WadmUnavailable", f"the last reports of wadm may be outdated: {store.unavailable}")
    if owner is None:
        return Verdict("Unknown", "OwnerUnknown", "the cluster that owns the lattice's applications is not known yet")
    if not owned:
        return Verdict("True", "ReadOnly", f"cluster {owner} owns the lattice's applications; they are shown here")
    if store.reason:
        return Verdict("True", "DeletionsNotDetected", store.reason)
    return Verdict("True", "Synced", "changes in wadm are shown as they occur")


def with_condition(
    conditions: list[Manifest], verdict: Verdict | None, now: str, generation: int
) -> list[Manifest] | None:
    """Return the conditions of a host group with this one, or without it; None if nothing changes.

    ``verdict``: None removes the condition; ``now``: in RFC 3339.
    """
    former = next((item for item in conditions if item["type"] == names.CONDITION_APPLICATIONS_SYNCED), None)
    if verdict is None:
        return None if former is None else [item for item in conditions if item is not former]
    condition = make_condition((names.CONDITION_APPLICATIONS_SYNCED, *verdict), conditions, generation, now)
    if condition == former:
        return None
    return [*(item for item in conditions if item is not former), condition]


@dataclass(frozen=True, slots=True)
class GroupConditions:
    """One reconcile of a lattice. ``remove_finalizers``: removes the condition, as it would become outdated."""

    kube: Kube
    cache: Cache
    permissions: MissingPermissions
    remove_finalizers: bool = False
    timings: Timings = Timings()

    async def run(self, lattice_id: str, trace: TraceContext | None) -> float | None:
        """Update the condition of each host group of a lattice; return seconds until the next run.

        Raises:
            KubeError: the queue retries.
        """
        del trace
        with self.permissions.noted(f"groups of {lattice_id}"):
            return await self._run(lattice_id)

    async def _run(self, lattice_id: str) -> float | None:
        if self.remove_finalizers:
            return await self._update_all(lattice_id, None)
        if not self._groups(lattice_id):
            self.cache.end_outage(lattice_id)  # a group that names the lattice later gets the full delay
            return None
        followers = self.cache.followers
        verdict = verdict_of(followers.store(lattice_id), followers.owner(lattice_id), owned=followers.owns(lattice_id))
        if verdict.status != "Unknown":
            self.cache.end_outage(lattice_id)
        else:
            now = time.monotonic()
            left = self.cache.unavailable(lattice_id, now) + self.timings.unreported - now
            if left > 0:
                return left
        return await self._update_all(lattice_id, verdict)

    def _groups(self, lattice_id: str) -> list[GroupView]:
        return [group for group in self.cache.groups_to_follow(lattice_id) if not group.deleting]

    async def _update_all(self, lattice_id: str, verdict: Verdict | None) -> float | None:
        updated = [
            await self._update_condition(group, verdict and self._of(group, verdict))
            for group in self._groups(lattice_id)
        ]
        return None if all(updated) else self.timings.status

    def _of(self, group: GroupView, verdict: Verdict) -> Verdict:
        """Return the condition of a host group: its namespace may resolve the name to another lattice."""
        if self.cache.means(group.namespace, group.lattice):
            return verdict
        name = lattice_name(group.lattice)
        reason = (
            f"an older host group of this namespace is on another lattice {name}, so this lattice's applications are "
            "not shown"
        )
        return Verdict("Unknown", "NameTaken", reason)

    async def _update_condition(self, group: GroupView, verdict: Verdict | None) -> bool:
        """Update the condition of a host group; return False if it has no status yet: host_manager writes it first."""
        with contextlib.suppress(NotFound):
            item = await self.kube.get(HOST_CONFIGS, group.name, group.namespace)
            if not item.get("status"):
                return False
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            before, generation = item["status"].get("conditions") or [], item["metadata"].get("generation") or 0
            conditions = with_condition(before, verdict, now, generation)
            if conditions is None or item["metadata"]["uid"] != group.uid:
                return True
            read = {key: item["metadata"][key] for key in ("uid", "resourceVersion")}
            await self.kube.merge_patch(
                HOST_CONFIGS,
                group.name,
                {"metadata": read, "status": {"conditions": conditions}},
                group.namespace,
                field_manager=names.FIELD_MANAGER_APPLICATION_MANAGER,
                subresource="status",
            )
        return True
