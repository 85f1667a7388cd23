"""Reads the input of a decision about one Shim: its nodes, its RuntimeClass, its present status.

In: the informers' views, the Shim and its RuntimeClass from the API server. Out: a frozen snapshot for ``shim_decide``.
Called by ``reconciler``. Invariant: a write is decided on objects that were read in the same run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from provisioner.cache import Cache
from provisioner.domain.other_controller import working_on
from provisioner.domain.shim_nodes import Tally
from provisioner.domain.shim_resources import view_runtime_class
from provisioner.domain.shim_snapshot import RuntimeClassView, Snapshot
from provisioner.domain.tasks import kept_version
from provisioner.rollout_gather import ledger_manifest
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.refusals import is_refused
from trellis.kube.resources import CONTROLLER_REVISIONS, RUNTIME_CLASSES, SHIMS
from trellis.provisioning.attempts import failing_on, failure_text, permitted_target
from trellis.provisioning.ledger import Ledger, read_ledger
from trellis.provisioning.leftovers import concerned_by, left_by
from trellis.provisioning.other_controllers import Controller
from trellis.provisioning.revisions import Manifest, Revision, label_selector, revisions_of, version_of
from trellis.provisioning.shim_status import read_status
from trellis.provisioning.shims import Refusal, ShimView, view_shim
from trellis.provisioning.targets import class_rival_of
from trellis.provisioning.views import KWASM, JobState, NodeView, newest
from trellis.provisioning.workload_state import WorkloadHalt


@dataclass(frozen=True, slots=True)
class ShimGather:
    """Reader of snapshots of Shims. It changes nothing."""

    kube: Kube
    cache: Cache

    async def snapshot(self, name: str) -> Snapshot | None:
        """Return the input of a decision about one Shim; None if there is none of this name."""
        try:
            manifest = await self.kube.get(SHIMS, name)
        except NotFound:
            return None
        cache = self.cache
        shim, now = cache.keys.judge(view_shim(manifest)), datetime.now(UTC)
        ledger = await self._ledger()
        revisions = await self._revisions(shim, version_of(manifest))
        runtime_class = await self._runtime_class(shim)
        tally = cache.fleet.tally(shim)
        nodes = tally.nodes()
        holders = (
            tuple(member.node for member in tally.members.values() if member.has is not None) if shim.deleting else ()
        )
        return Snapshot(
            shim=shim,
            status=read_status(manifest),
            runtime_class=runtime_class,
            nodes=nodes,
            holders=holders,
            in_progress=self._in_progress(name, ledger),
            failing=tuple(self._failing(name, ledger)),
            halted=name in ledger.halted,
            waits=cache.waits_for(name),
            halt=_halt(name, ledger),
            in_use=self._in_use(tally, removal=True),
            drain_blocked=self._in_use(tally, removal=False),
            paused_nodes=self._paused_nodes(name, holders),
            class_rival=class_rival_of(shim, cache.shims.values()),
            class_refused=cache.class_refusal(name),
            refused=self._refused(tally),
            ledger_refused=cache.ledger_refusal,
            patience_over=cache.deletions.lasts(shim.uid) > cache.timings.unreachable,
            now=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            other=self._other(shim, tally),
            version=version_of(manifest),
            revisions=revisions,
            in_use_revisions=_in_use(manifest, revisions or (), nodes.carried),
        )

    def _in_progress(self, name: str, ledger: Ledger) -> tuple[NodeView, ...]:
        """Return the nodes whose Jobs change a Shim: by the ledger, or by a Job that has no entry there yet."""
        if name == KWASM:
            return ()

        def works(node: NodeView) -> bool:
            entry = ledger.entries.get(node.uid)
            # An older Job was followed by one that rolled it back or repeated it.
            job = newest(self.cache.jobs.of_uid(node.uid))
            changes = job is not None and name in concerned_by(job)
            at_work = changes and job is not None and (job.state is JobState.ACTIVE or name in left_by(job, node))
            return at_work or (entry is not None and name in entry.shims)

        return tuple(filter(works, self.cache.fleet.named({**self.cache.jobs.by_uid(), **ledger.entries})))

    def _in_use(self, tally: Tally, *, removal: bool) -> tuple[tuple[NodeView, str], ...]:
        """Return the nodes from which a Shim cannot be removed, or on which it cannot be changed, with the reason."""
        in_use = self.cache.in_use()
        members = ((tally.members.get(node.name), node) for node in self.cache.fleet.named(in_use))
        having = ((item, node) for item, node in members if item is not None and item.has is not None)
        found = (node for item, node in having if (item.wanted is None) is removal)
        return tuple((node, in_use[node.uid]) for node in found)

    async def _ledger(self) -> Ledger:
        """Return the ledger; an empty one if reading it is refused, which the status reports."""
        try:
            if (ledger := self.cache.ledger) is not None:
                return ledger
            manifest = await ledger_manifest(self.kube, self.cache.settings.namespace)  # the planner caches it
            return read_ledger(manifest) if manifest else Ledger({})
        except KubeError as error:
            if not is_refused(error):
                raise
            return Ledger({})

    def _refused(self, tally: Tally) -> tuple[tuple[NodeView, str, str], ...]:
        """Return the nodes on which the API server refuses a request, with its reason and the error.

        On a node where nothing of the Shim may be installed, the request is of other Shims.
        """
        by_uid = self.cache.refused.by_uid
        found = []
        for node in self.cache.fleet.named(by_uid):
            member = tally.members.get(node.name)
            if member is not None and not isinstance(member.wanted, Refusal):
                found.append((node, by_uid[node.uid].reason.value, by_uid[node.uid].message))
        return tuple(found)

    def _paused_nodes(self, name: str, holders: Iterable[NodeView]) -> tuple[NodeView, ...]:
        """Return the nodes from which a mass deletion may still remove a Shim; none if it was deleted individually."""
        shims, label = self.cache.shims, names.shim_label(name)
        if name not in shims or not shims[name].deleting or name in self.cache.deletions.alone(shims.values()):
            return ()
        return tuple(node for node in holders if label in node.label_values())

    def _failing(self, name: str, ledger: Ledger) -> Iterator[tuple[NodeView, str]]:
        """Yield the nodes on which attempts failed because of a Shim, with the error."""
        limits = self.cache.settings.limits(self.cache.shims.values())
        for node in self.cache.fleet.restless():
            target = self.cache.fleet.target(node) if node.failed else None
            if target is None:
                continue
            if name in failing_on(node, target, permitted_target(node, target, limits, ledger.halted)):
                yield node, failure_text(node, target, name)

    def _other(self, shim: ShimView, tally: Tally) -> Controller | None:
        """Return the controller of another owner that works on this Shim, or on nodes that have it or require it."""
        if not self.cache.controllers:
            return None
        return working_on(shim.name, (member.node for member in tally.members.values()), self.cache.controllers)

    async def _revisions(self, shim: ShimView, version: Manifest) -> tuple[Revision, ...] | None:
        """Return the stored versions; None if the newest is this one, so that a rollout does not list at each step."""
        if shim.deleting or shim.invalid or self.cache.is_newest(shim, version):
            return None
        listing = await self.kube.list(
            CONTROLLER_REVISIONS, self.cache.settings.namespace, label_selector=label_selector(shim.name)
        )
        return revisions_of(shim.uid, listing.items)

    async def _runtime_class(self, shim: ShimView) -> RuntimeClassView | None:
        if not shim.runtime_class:
            return None
        try:
            return view_runtime_class(await self.kube.get(RUNTIME_CLASSES, shim.runtime_class))
        except NotFound:
            return None


def _halt(name: str, ledger: Ledger) -> WorkloadHalt | None:
    state = ledger.workloads.get(name)
    return state.halt if state is not None else None


def _in_use(manifest: Manifest, revisions: Iterable[Revision], carried: Collection[tuple[str, str]]) -> frozenset[str]:
    """Return the names of the revisions whose versions nodes have, or had before an unverified one.

    ``carried``: architectures and digests of nodes.
    """
    return frozenset(
        revision.name for revision in revisions if any(kept_version(manifest, [revision], *pair) for pair in carried)
    )
