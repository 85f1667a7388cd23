"""What provisioner knows of one Shim: its nodes, its RuntimeClass, its status as it stands.

In: the informers' views, the Shim and its RuntimeClass from the API server. Out: a frozen snapshot for ``shim_decide``.
Called by ``app``. Invariant: what is written is decided on what was read in the same run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from provisioner.domain.hands_off import working_on
from provisioner.domain.shim_resources import view_runtime_class
from provisioner.domain.shim_snapshot import RuntimeClassView, Snapshot
from provisioner.known import Known
from trellis import names
from trellis.installer_api.spec import ShimWish
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.refusals import is_refused
from trellis.kube.resources import CONTROLLER_REVISIONS, RUNTIME_CLASSES, SHIMS
from trellis.provisioning.attempts import asked_of, failing_on
from trellis.provisioning.ledger import Ledger
from trellis.provisioning.leftovers import concerned_by, left_by
from trellis.provisioning.other_controllers import Controller
from trellis.provisioning.revisions import Manifest, Revision, label_selector, restored, revisions_of, version_of
from trellis.provisioning.shim_status import read_status
from trellis.provisioning.shims import ShimView, is_for, view_shim, wish_for
from trellis.provisioning.targets import rival_of, stays_on, wish_on
from trellis.provisioning.views import KWASM, JobState, NodeView, installed_on, last_proved, newest


@dataclass(frozen=True, slots=True)
class Shims:
    """Reads snapshots of Shims. ``kept``: by Shim name its uid and the version that its newest revision has."""

    kube: Kube
    known: Known
    kept: dict[str, tuple[str, Manifest]] = field(default_factory=dict)

    async def snapshot(self, name: str) -> Snapshot | None:
        """Return all that a decision about one Shim depends on; None if there is none of this name."""
        try:
            manifest = await self.kube.get(SHIMS, name)
        except NotFound:
            self.kept.pop(name, None)
            return None
        await self.known.deletions.look(self.known.shims.values())
        shim, now = self.known.keys.judge(view_shim(manifest)), datetime.now(UTC)
        settings, nodes = self.known.settings, tuple(self.known.nodes.values())
        auto, shims = settings.auto_provision, tuple(self.known.shims.values())
        staying = [node for node in nodes if is_for(shim, node, auto_provision=auto) or stays_on(shim, node)]
        holders = tuple(node for node in nodes if name in installed_on(node))
        rivals = {rival_of(shim, node, shims, auto_provision=auto) for node in staying}
        ledger = await self._ledger()
        revisions = await self._revisions(shim, version_of(manifest))
        return Snapshot(
            shim=shim,
            status=read_status(manifest),
            runtime_class=await self._runtime_class(shim),
            wishes=tuple(
                (node, wish_on(shim, node, shims, auto_provision=auto, require_checksum=settings.require_checksum))
                for node in staying
            ),
            holders=holders,
            in_work=self._in_work(name, ledger, nodes),
            failing=tuple(node for node in nodes if node.skip is None and name in self._failing(node, ledger)),
            halted=name in ledger.halted,
            rivals=tuple(sorted(rivals - {""})),
            in_use=tuple(
                (node, self.known.in_use[node.uid])
                for node in holders
                if node.uid in self.known.in_use and node not in staying
            ),
            held=self._held(name, holders),
            class_refused=self.known.classes_refused.get(name, ""),
            refused=self._refused((*staying, *holders)),
            ledger_refused=self.known.ledger_refused,
            patience_over=self.known.deletions.lasts(shim.uid) > self.known.timings.unreachable,
            now=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            other=self._other(shim, nodes),
            version=version_of(manifest),
            revisions=revisions,
            in_use_revisions=_in_use(manifest, revisions or (), holders),
        )

    def _in_work(self, name: str, ledger: Ledger, nodes: Iterable[NodeView]) -> tuple[NodeView, ...]:
        """Return the nodes whose work changes a Shim: by the ledger, or by a Job that has no entry there yet."""
        if name == KWASM:
            return ()

        def works(node: NodeView) -> bool:
            entry = ledger.entries.get(node.uid)
            # An older Job was followed by one that took back what it did, or did it over.
            job = newest(self.known.jobs.of_uid(node.uid))
            changes = job is not None and name in concerned_by(job)
            at_work = changes and job is not None and (job.state is JobState.ACTIVE or name in left_by(job, node))
            return at_work or (entry is not None and name in entry.shims)

        return tuple(filter(works, nodes))

    async def _ledger(self) -> Ledger:
        """Return the ledger; without the right to read it the status says so, and counts what is known besides."""
        try:
            return await self.known.ledger_now()
        except KubeError as error:
            if not is_refused(error):
                raise
            return Ledger({})

    def _refused(self, nodes: Iterable[NodeView]) -> tuple[tuple[NodeView, str, str], ...]:
        found = {node.uid: (node, self.known.refused.by_uid.get(node.uid)) for node in nodes}
        return tuple((node, one.reason.value, one.message) for node, one in found.values() if one is not None)

    def _held(self, name: str, holders: Iterable[NodeView]) -> tuple[NodeView, ...]:
        """Return the nodes that a mass deletion may still take a Shim from; none if it was deleted by itself."""
        watched, label = self.known.shims.get(name), names.shim_label(name)
        if watched is None or not watched.deleting or name in self.known.deletions.alone(self.known.shims.values()):
            return ()
        return tuple(node for node in holders if label in dict(node.labels))

    def _failing(self, node: NodeView, ledger: Ledger) -> tuple[str, ...]:
        target = self.known.target(node) if node.failed else None
        if target is None:
            return ()
        limits = self.known.settings.limits(self.known.shims.values())
        return failing_on(node, target, asked_of(node, target, limits, ledger.halted))

    def _other(self, shim: ShimView, nodes: tuple[NodeView, ...]) -> Controller | None:
        """Return the controller of somebody else that works on this Shim, or on nodes that have it or are to."""
        if not self.known.controllers:
            return None
        auto = self.known.settings.auto_provision
        concerned = (
            node for node in nodes if shim.name in installed_on(node) or is_for(shim, node, auto_provision=auto)
        )
        return working_on(shim.name, concerned, self.known.controllers)

    async def _revisions(self, shim: ShimView, version: Manifest) -> tuple[Revision, ...] | None:
        """Return the kept versions; None if the newest is this one, so that a rollout does not list at each step."""
        if shim.deleting or shim.invalid or self.kept.get(shim.name) == (shim.uid, version):
            return None
        # From here until it is read back another version may be the newest: what comes back then is to be kept anew.
        self.kept.pop(shim.name, None)
        listing = await self.kube.list(
            CONTROLLER_REVISIONS, self.known.settings.namespace, label_selector=label_selector(shim.name)
        )
        revisions = revisions_of(shim.uid, listing.items)
        if revisions and revisions[-1].version == version:
            self.kept[shim.name] = (shim.uid, version)
        return revisions

    async def _runtime_class(self, shim: ShimView) -> RuntimeClassView | None:
        if not shim.runtime_class:
            return None
        try:
            return view_runtime_class(await self.kube.get(RUNTIME_CLASSES, shim.runtime_class))
        except NotFound:
            return None


def _in_use(manifest: Manifest, revisions: Iterable[Revision], holders: Iterable[NodeView]) -> frozenset[str]:
    """Return the names of the revisions whose versions nodes have, or had before what is not proved there."""
    name = manifest["metadata"]["name"]
    carried = {(node.architecture, last_proved(installed_on(node)[name])) for node in holders}
    used = set()
    for revision in revisions:
        shim = view_shim(restored(revision, manifest))
        for architecture, digest in carried:
            wish = wish_for(shim, architecture, require_checksum=False)
            if isinstance(wish, ShimWish) and wish.digest == digest:
                used.add(revision.name)
    return frozenset(used)
