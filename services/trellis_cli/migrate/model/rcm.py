"""What becomes of the Shims, nodes, RuntimeClasses and Jobs that runtime-class-manager left.

Pure: a world in, steps out. Called by ``migrate``. Source of the facts: runtime-class-manager labels a node with the
Shim's name and ``pending``, ``provisioned``, ``failed`` or ``uninstall``, by the exit code of its Job alone, and keeps
no version; its finalizer waits for a controller that is no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from provisioner.domain.shim_decide import wanted_selector
from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis import names
from trellis.installer_api.spec import WantedShim
from trellis.kube.preconditions import only_if
from trellis.provisioning.shims import Refusal, ShimView, is_for, wish_for
from trellis.provisioning.views import JobState, NodeView, Proof
from trellis_cli.migrate.model.plan import DeleteJob, Doing, Listed, PatchShim, PeerJob, Step, World, listed, take_over

FINALIZERS: Final = frozenset({"rcm.spinkube.dev/finalizer", "kwasm.sh/finalizer"})
"""runtime-class-manager's, at present and before it had its name."""
_VALUES: Final = frozenset({"provisioned", "pending", "failed", "uninstall"})


def plan_rcm(world: World) -> list[Step]:
    """Return what becomes of nodes, Shims, RuntimeClasses and Jobs, in the order in which it is done."""
    steps: list[Step] = []
    holders: dict[str, set[str]] = {
        shim.name: {node.name for node in world.nodes if shim.name in node.installed} for shim in world.shims
    }
    for node in sorted(world.nodes, key=lambda node: node.name):
        taken: dict[str, tuple[ShimView, str]] = {}
        for shim in sorted(world.shims, key=lambda shim: shim.name):
            value = dict(node.labels).get(names.shim_label(shim.name))
            if value not in _VALUES or shim.name in node.installed:
                continue
            found = _version(world, node, shim, value)
            if isinstance(found, Step):
                steps.append(found)
            else:
                taken[shim.name] = (shim, found)
                holders[shim.name].add(node.name)
        if taken:
            steps.append(_node(world, node, taken))
    steps += [step for shim in world.shims for step in (_shim(shim),) if step]
    steps += [step for shim in world.shims for step in _classes(shim, world.classes)]
    jobs = sorted((job for job in world.jobs if job.shim), key=lambda job: job.place)
    return [*steps, *(_job(job, holders.get(job.shim, set())) for job in jobs)]


def _version(world: World, node: NodeView, shim: ShimView, value: str) -> str | Step:
    """Return the digest of what is on a node by its label, or why nothing is taken over there."""
    wish = wish_for(shim, node.architecture, require_checksum=False)
    job = next((job for job in world.jobs if job.shim == shim.name and job.is_on(node) and _active(job)), None)
    reason = ""
    if job is not None:
        reason = f"{job.place} still works on it: run the command again when it has ended"
    elif shim.deleting:
        reason = "the Shim is being deleted"
    elif shim.invalid:
        reason = f"the Shim cannot be read: {shim.invalid}"
    elif not is_for(shim, node, auto_provision=world.rules.auto_provision):
        reason = "the Shim is not for this node any more: the runtime and the label stay as they are"
    elif value != names.SHIM_PROVISIONED:
        reason = "it was never provisioned: Trellis will install it"
    elif listed(node, shim.handler) is Listed.NO:
        reason = f"the kubelet lists handlers, and {shim.handler!r} is none of them: Trellis will install it"
    elif isinstance(wish, Refusal):
        reason = f"spec.fetchStrategy has no source for linux/{node.architecture or 'unknown'}"
    if isinstance(wish, WantedShim) and not reason:
        return wish.digest
    return Step(f"Node {node.name}", f"labelled {names.shim_label(shim.name)}={value}", Doing.LEAVE, reason)


def _active(job: PeerJob) -> bool:
    return job.state is JobState.ACTIVE


def _node(world: World, node: NodeView, taken: dict[str, tuple[ShimView, str]]) -> Step:
    labels = (f"{names.shim_label(name)}={names.SHIM_PROVISIONED}" for name in taken)
    proved = all(listed(node, shim.handler) is Listed.YES for shim, _ in taken.values())
    handlers = ", ".join(repr(shim.handler) for shim, _ in taken.values())
    why = (
        f"the kubelet lists {handlers}"
        if proved
        else (
            "unproved, because the kubelet lists no handlers: it keeps its label and does not get "
            f"{names.LABEL_WASM_READY}={names.WASM_READY}"
        )
    )
    unpinned = sorted(name for name, (shim, _) in taken.items() if _unpinned(world, node, shim))
    if unpinned:
        why += f"; {', '.join(unpinned)} has no sha256: a Shim with one is another version, and is rolled out"
    proof = Proof.HANDLER if proved else Proof.JOB
    digests = {name: digest for name, (_, digest) in taken.items()}
    return take_over(world, node, digests, proof, (f"labelled {', '.join(labels)}", why))


def _unpinned(world: World, node: NodeView, shim: ShimView) -> bool:
    required = world.rules.require_checksum
    return wish_for(shim, node.architecture, require_checksum=required) is Refusal.CHECKSUM_MISSING


def _shim(shim: ShimView) -> Step | None:
    """Return what becomes of a Shim that bears runtime-class-manager's finalizer, None if it does not."""
    theirs = [name for name in shim.finalizers if name in FINALIZERS]
    if not theirs:
        return None
    place, what = f"Shim {shim.name}", f"bears the finalizer {', '.join(theirs)}"
    if shim.deleting and names.FINALIZER not in shim.finalizers:
        why = (
            "being deleted, and not managed by Trellis: remove the finalizer, then it is deleted and "
            "its runtime stays on its nodes"
        )
        return Step(place, what, Doing.LEAVE, why)
    others = [name for name in shim.finalizers if name not in FINALIZERS and name != names.FINALIZER]
    ops = (
        *only_if(shim.uid, shim.resource_version),
        {"op": "replace", "path": "/metadata/finalizers", "value": [*others, names.FINALIZER]},
    )
    why = f"no controller removes it; {names.FINALIZER} takes its place and waits until no node has the Shim"
    return Step(place, what, Doing.TAKE_OVER, why, PatchShim(shim.name, ops))


def _classes(shim: ShimView, classes: Iterable[RuntimeClassView]) -> Iterable[Step]:
    """Yield what becomes of a Shim's RuntimeClass, unless it is as we want it."""
    for found in classes:
        if found.name != shim.runtime_class or (found.owner == shim.uid and found.selector == wanted_selector(shim)):
            continue
        place, what = f"RuntimeClass {found.name}", f"of Shim {shim.name}, handler {found.handler!r}"
        if found.owner == shim.uid or (not found.owner and found.handler == shim.handler):
            (label, value), *_ = wanted_selector(shim)
            why = f"the provisioner takes it over as it is, and then lets its pods only onto nodes with {label}={value}"
            yield Step(place, what, Doing.KEEP, why)
        else:
            why = "it is not this Shim's: name another in spec.runtimeClass.name, or delete it"
            yield Step(place, what, Doing.LEAVE, why)


def _job(job: PeerJob, holders: set[str]) -> Step:
    what = f"runtime-class-manager's {job.operation} of {job.shim} on node {job.node}"
    if _active(job):
        return Step(job.place, what, Doing.LEAVE, "it still runs")
    if job.state is JobState.FAILED:
        return Step(job.place, what, Doing.LEAVE, "it failed: its log says why")
    if job.operation == "install" and job.node not in holders:
        return Step(job.place, what, Doing.LEAVE, "its node is not taken over")
    return Step(job.place, what, Doing.DELETE, "it ended, no longer needed", DeleteJob(job), job.node)
