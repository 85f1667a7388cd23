"""Computes the task of the Job that brings a node to its target: the shims that it adds or removes.

Pure. In: a Node, its target, the present and former Shims. Out: a :class:`Task` for ``resources``. Called by
``gather``, and by ``verification`` for a rollback.
Invariants: a Job contains only the changes of its node, so a problem of one Shim prevents the installation of no other;
a removal uses name and owner, which the node records, independent of the Shim object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.domain.canary import canary_of
from provisioner.domain.resources import Manifest, Task
from trellis.crds.shim import RemovalPolicy
from trellis.installer_api.spec import InstallSpec, WantedShim, removal_of, shim_owner
from trellis.provisioning.attempts import changes_of
from trellis.provisioning.revisions import Revision, restored
from trellis.provisioning.shims import ShimView, view_shim, wanted_shim_for
from trellis.provisioning.views import KWASM, JobView, NodeView, Target, as_unverified, encode_digests, last_verified


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of Jobs. ``handler``: that of the legacy image; ``canary_image``: for Shims that name none.

    ``retry_refused``: for this Job, whether a user acknowledged the node's last failure by resuming the rollout.
    """

    handler: str | None
    canary_image: str
    require_checksum: bool
    allow_http: bool
    retry_refused: bool = False

    def spec(self, shims: tuple[WantedShim, ...]) -> InstallSpec:
        """Return the spec of these shims for an installer."""
        return InstallSpec(shims, self.require_checksum, self.allow_http, self.retry_refused)


def task_of(node: NodeView, target: Target, shims: Mapping[str, ShimView], rules: Rules) -> Task:
    """Return the task for a node; a removal is a task of its own."""
    wanted, installed = dict(target.shims), node.installed
    if tuple(wanted) == (KWASM,) and not installed.keys() - {KWASM}:
        return Task(target, handlers=(rules.handler,) if rules.handler else ())
    if deleting := to_remove(node, target):
        return _removal(target, deleting, shims, rules)
    changed = [shims[name] for name in changes_of(node, target) if name in shims]
    wanted_shims = _wanted_shims(changed, node, require_checksum=rules.require_checksum)
    return Task(
        target,
        handlers=tuple(shim.handler for shim in wanted_shims),
        spec=rules.spec(wanted_shims),
        canaries=tuple(shim.name for shim in changed if canary_of(shim, rules.canary_image) is not None),
    )


def to_remove(node: NodeView, target: Target) -> tuple[str, ...]:
    """Return the Shims to uninstall from a node; the runtime of a legacy image cannot be uninstalled."""
    wanted = dict(target.shims)
    return tuple(sorted(name for name in node.installed if name not in wanted and name != KWASM))


def _removal(target: Target, deleting: Iterable[str], shims: Mapping[str, ShimView], rules: Rules) -> Task:
    """Return the removal of Shims. Force is for all of them or for none: ``target_of`` keeps the two apart."""
    removals = removals_of(deleting, shims)
    stay = {shims[name].handler for name, _ in target.shims if name in shims}
    return Task(
        target,
        removed_handlers=tuple(wanted.handler for wanted in removals if wanted.handler and wanted.handler not in stay),
        spec=rules.spec(removals),
        removes=True,
        force=all(name in shims and shims[name].removal_policy is RemovalPolicy.FORCE for name in deleting),
    )


def removals_of(deleting: Iterable[str], shims: Mapping[str, ShimView]) -> tuple[WantedShim, ...]:
    """Return the removals of Shims from a node. For a deleted Shim, the record on the node has the handler."""
    return tuple(removal_of(name, shim_owner(name), shims[name].handler if name in shims else "") for name in deleting)


@dataclass(frozen=True, slots=True)
class Former:
    """State for the rollback of a node.

    ``kept``: specs of its former versions, of those that have a revision (ADR 20). ``shims``: those of the Job that
    exist, by name.
    """

    kept: tuple[WantedShim, ...] = ()
    shims: Mapping[str, ShimView] = field(default_factory=dict)
    allow_http: bool = False


def kept_version(
    manifest: Manifest, revisions: Sequence[Revision], architecture: str, digest: str
) -> WantedShim | None:
    """Return the spec of a version of a Shim on an architecture; None if none of its revisions is that version."""
    for revision in reversed(revisions):
        wanted = wanted_shim_for(view_shim(restored(revision, manifest)), architecture, require_checksum=False)
        if isinstance(wanted, WantedShim) and wanted.digest == digest:
            return wanted
    return None


def had_of(node: NodeView, shims: Iterable[str]) -> dict[str, str]:
    """Return the last verified versions of these Shims on a node, without those that were never verified."""
    return {name: digest for name in shims if (digest := last_verified(node.installed.get(name)))}


def undo_of(node: NodeView, job: JobView, shims: Collection[str], reason: str, former: Former) -> Task:
    """Return the task that rolls back some shims of a Job to the state in the node's marks.

    Shims that were never verified on the node are removed, even if pods run with them; former versions of the rest are
    reinstalled if they have a revision, otherwise the present ones stay unverified. Further Shims of the Job stay as
    they are, and the outcome of the Job reports them (ADR 29).
    """
    had = had_of(node, shims)
    unverified = [name for name in shims if name not in had]
    back = {wanted.name: wanted for wanted in former.kept if wanted.name in had}
    lost = sorted(had.keys() - back.keys())
    if lost:
        reason += f"; the former version of {', '.join(lost)} has no revision, so this one stays without its label"
    after = {name: digest for name, digest in node.installed.items() if name not in unverified}
    after |= {name: as_unverified(node.installed.get(name)) for name in lost}
    after |= {wanted.name: wanted.digest for wanted in back.values()}
    after |= {name: as_unverified(None) for name in job.shims if name not in node.installed and name not in unverified}
    removed, removes = removals_of(unverified, former.shims), bool(unverified) and not back
    removals = InstallSpec(removed, require_checksum=False, allow_http=former.allow_http)
    installs = InstallSpec(tuple(back.values()), require_checksum=False, allow_http=former.allow_http)
    return Task(
        Target(tuple(sorted(after.items()))),
        removed_handlers=tuple(wanted.handler for wanted in removed if wanted.handler),
        spec=removals if removes else installs,
        removes=removes,
        force=removes,
        first=removals if unverified and back else None,
        rolls_back=job,
        blamed=encode_digests({name: job.shims[name] for name in shims}),
        reason=reason,
    )


def _wanted_shims(shims: Iterable[ShimView], node: NodeView, *, require_checksum: bool) -> tuple[WantedShim, ...]:
    wanted_shims = (wanted_shim_for(shim, node.architecture, require_checksum=require_checksum) for shim in shims)
    return tuple(wanted for wanted in wanted_shims if isinstance(wanted, WantedShim))
