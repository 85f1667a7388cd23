"""Plans the migration of the Shims, nodes, RuntimeClasses and Jobs of runtime-class-manager.

Pure: a snapshot in, steps out. Called by ``migrate``. Source: runtime-class-manager labels a node with the name of the
Shim and ``pending``, ``provisioned``, ``failed`` or ``uninstall``, only by the exit code of its Job, and stores no
version; its finalizer waits for a controller that no longer exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from provisioner.domain.shim_decide import wanted_placement
from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis import names
from trellis.installer_api.spec import WantedShim
from trellis.kube.preconditions import only_if
from trellis.provisioning.shims import Refusal, ShimView, is_for, wanted_shim_for
from trellis.provisioning.views import JobState, NodeView, VerifiedBy
from trellis_cli.migrate.model.plan import (
    ClusterSnapshot,
    DeleteJob,
    Doing,
    Listed,
    PatchShim,
    PeerJob,
    Step,
    listed,
    take_over,
)

FINALIZERS: Final = frozenset({"rcm.spinkube.dev/finalizer", "kwasm.sh/finalizer"})
"""Finalizers of runtime-class-manager: the current one, and that of its former name."""
_VALUES: Final = frozenset({"provisioned", "pending", "failed", "uninstall"})


def plan_rcm(snapshot: ClusterSnapshot) -> list[Step]:
    """Return the steps for nodes, Shims, RuntimeClasses and Jobs, in execution order."""
    steps: list[Step] = []
    holders: dict[str, set[str]] = {
        shim.name: {node.name for node in snapshot.nodes if shim.name in node.installed} for shim in snapshot.shims
    }
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        taken: dict[str, tuple[ShimView, str]] = {}
        for shim in sorted(snapshot.shims, key=lambda shim: shim.name):
            value = node.label_values().get(names.shim_label(shim.name))
            if value not in _VALUES or shim.name in node.installed:
                continue
            found = _version(snapshot, node, shim, value)
            if isinstance(found, Step):
                steps.append(found)
            else:
                taken[shim.name] = (shim, found)
                holders[shim.name].add(node.name)
        if taken:
            steps.append(_node(snapshot, node, taken))
    steps += [step for shim in snapshot.shims for step in (_shim(shim),) if step]
    steps += [step for shim in snapshot.shims for step in _classes(shim, snapshot.classes)]
    jobs = sorted((job for job in snapshot.jobs if job.shim), key=lambda job: job.place)
    return [*steps, *(_job(job, holders.get(job.shim, set())) for job in jobs)]


def _version(snapshot: ClusterSnapshot, node: NodeView, shim: ShimView, value: str) -> str | Step:
    """Return the digest of the installation on a node, from its label, or the step that leaves the node unchanged."""
    wanted = wanted_shim_for(shim, node.architecture, require_checksum=False)
    job = next((job for job in snapshot.jobs if job.shim == shim.name and job.is_on(node) and _active(job)), None)
    reason = ""
    if job is not None:
        reason = f"{job.place} still works on it: rerun the command after it has ended"
    elif shim.deleting:
        reason = "the Shim is being deleted"
    elif shim.invalid:
        reason = f"the Shim cannot be read: {shim.invalid}"
    elif not is_for(shim, node, auto_provision=snapshot.rules.auto_provision):
        reason = "the Shim is not for this node any more: the runtime and the label are kept"
    elif value != names.SHIM_PROVISIONED:
        reason = "never provisioned: Trellis will install it"
    elif listed(node, shim.handler) is Listed.NO:
        reason = f"the kubelet lists handlers, and {shim.handler!r} is none of them: Trellis will install it"
    elif isinstance(wanted, Refusal):
        reason = f"spec.fetchStrategy has no source for linux/{node.architecture or 'unknown'}"
    if isinstance(wanted, WantedShim) and not reason:
        return wanted.digest
    return Step(f"Node {node.name}", f"labelled {names.shim_label(shim.name)}={value}", Doing.LEAVE, reason)


def _active(job: PeerJob) -> bool:
    return job.state is JobState.ACTIVE


def _node(snapshot: ClusterSnapshot, node: NodeView, taken: dict[str, tuple[ShimView, str]]) -> Step:
    labels = (f"{names.shim_label(name)}={names.SHIM_PROVISIONED}" for name in taken)
    verified = all(listed(node, shim.handler) is Listed.YES for shim, _ in taken.values())
    handlers = ", ".join(repr(shim.handler) for shim, _ in taken.values())
    reason = (
        f"the kubelet lists {handlers}"
        if verified
        else (
            "not verified, because the kubelet lists no handlers: it keeps its label without "
            f"{names.LABEL_WASM_READY}={names.WASM_READY}"
        )
    )
    unpinned = sorted(name for name, (shim, _) in taken.items() if _unpinned(snapshot, node, shim))
    if unpinned:
        reason += f"; {', '.join(unpinned)} has no sha256: adding one changes the version and starts a rollout"
    verified_by = VerifiedBy.HANDLER if verified else VerifiedBy.JOB
    digests = {name: digest for name, (_, digest) in taken.items()}
    return take_over(snapshot, node, digests, verified_by, (f"labelled {', '.join(labels)}", reason))


def _unpinned(snapshot: ClusterSnapshot, node: NodeView, shim: ShimView) -> bool:
    required = snapshot.rules.require_checksum
    return wanted_shim_for(shim, node.architecture, require_checksum=required) is Refusal.CHECKSUM_MISSING


def _shim(shim: ShimView) -> Step | None:
    """Return the step for a Shim with the finalizer of runtime-class-manager, None without it."""
    theirs = [name for name in shim.finalizers if name in FINALIZERS]
    if not theirs:
        return None
    place, what = f"Shim {shim.name}", f"has the finalizer {', '.join(theirs)}"
    if shim.deleting and names.FINALIZER not in shim.finalizers:
        reason = (
            "being deleted, and not managed by Trellis: remove the finalizer to complete the deletion; "
            "its runtime stays on its nodes"
        )
        return Step(place, what, Doing.LEAVE, reason)
    others = [name for name in shim.finalizers if name not in FINALIZERS and name != names.FINALIZER]
    ops = (
        *only_if(shim.uid, shim.resource_version),
        {"op": "replace", "path": "/metadata/finalizers", "value": [*others, names.FINALIZER]},
    )
    reason = f"no controller removes it; {names.FINALIZER} replaces it and waits until no node has the Shim"
    return Step(place, what, Doing.TAKE_OVER, reason, PatchShim(shim.name, ops))


def _classes(shim: ShimView, classes: Iterable[RuntimeClassView]) -> Iterable[Step]:
    """Yield the step for the RuntimeClass of a Shim, unless it already matches."""
    for found in classes:
        if found.name != shim.runtime_class or (found.owner == shim.uid and found.placement == wanted_placement(shim)):
            continue
        place, what = f"RuntimeClass {found.name}", f"of Shim {shim.name}, handler {found.handler!r}"
        if found.owner == shim.uid or (not found.owner and found.handler == shim.handler):
            label = f"{names.shim_label(shim.name)}={names.SHIM_PROVISIONED}"
            reason = f"the provisioner takes it over unchanged, then limits its pods to nodes with {label}"
            yield Step(place, what, Doing.KEEP, reason)
        else:
            reason = "it does not belong to this Shim: set another spec.runtimeClass.name, or delete it"
            yield Step(place, what, Doing.LEAVE, reason)


def _job(job: PeerJob, holders: set[str]) -> Step:
    what = f"runtime-class-manager: {job.operation} of {job.shim} on node {job.node}"
    if _active(job):
        return Step(job.place, what, Doing.LEAVE, "still running")
    if job.state is JobState.FAILED:
        return Step(job.place, what, Doing.LEAVE, "failed: see its log")
    if job.operation == "install" and job.node not in holders:
        return Step(job.place, what, Doing.LEAVE, "its node is not taken over")
    return Step(job.place, what, Doing.DELETE, "finished, no longer needed", DeleteJob(job), job.node)
