"""Plans the migration of the nodes and Jobs of KWasm.

Pure: a snapshot in, steps out. Called by ``migrate``. Source: the operator of KWasm labels a node, with the name of the
node as value, before its Job ends, and ignores the result of the Job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trellis import names
from trellis.provisioning.other_controllers import Peer, is_of
from trellis.provisioning.views import KWASM, JobState, NodeView, OptIn, VerifiedBy, opt_in_of
from trellis_cli.migrate.model.plan import (
    ClusterSnapshot,
    DeleteJob,
    Doing,
    Listed,
    PeerJob,
    Rules,
    Step,
    listed,
    take_over,
)

_IMAGE: Final = "INSTALLER_IMAGE"
_AUTO: Final = "AUTO_PROVISION_NODES"
"""Environment variables of the values of its chart in the Deployment of KWasm's operator."""


@dataclass(frozen=True, slots=True)
class Values:
    """Settings of KWasm's operator in its Deployment, running or scaled to 0; None if not set there."""

    place: str
    installer_image: str | None
    auto_provision: bool | None


def values_of(deployments: Iterable[Mapping[str, Any]]) -> Values | None:
    """Return the settings of KWasm's operator, None if there is no Deployment of it."""
    for item in deployments:
        if not is_of(Peer.KWASM, item):
            continue
        containers = item["spec"]["template"]["spec"].get("containers") or ()
        env = {entry["name"]: entry.get("value") for container in containers for entry in container.get("env") or ()}
        auto = env.get(_AUTO)
        place = f"Deployment {item['metadata']['namespace']}/{item['metadata']['name']}"
        return Values(place, env.get(_IMAGE) or None, None if auto is None else auto == "true")
    return None


def with_values(rules: Rules, values: Values | None, given: frozenset[str]) -> tuple[Rules, list[str]]:
    """Return the rules with the values of KWasm for settings of the provisioner that are not set, and notes.

    ``given``: names of the settings that are set by flag or environment; these have precedence.
    """
    if values is None:
        return rules, []
    image = values.installer_image if "installer_image" not in given else None
    auto = values.auto_provision if "auto_provision" not in given else None
    taken = []
    if image is not None and image != rules.installer.image:
        taken.append(f"TRELLIS_INSTALLER_IMAGE={image}")
    if auto is not None and auto != rules.auto_provision:
        taken.append(f"TRELLIS_AUTO_PROVISION={str(auto).lower()}")
    if not taken:
        return rules, []
    rules = replace(
        rules,
        installer=replace(rules.installer, image=image or rules.installer.image),
        auto_provision=rules.auto_provision if auto is None else auto,
    )
    return rules, [f"KWasm's values are taken from {values.place}: start the services with {' '.join(taken)}"]


def plan_kwasm(snapshot: ClusterSnapshot) -> list[Step]:
    """Return the steps for each node with the label of KWasm, and for each of its Jobs; nodes first, by name."""
    jobs = [job for job in snapshot.jobs if not job.shim]
    steps = []
    taken = {node.name for node in snapshot.nodes if KWASM in node.installed}
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        job = next((job for job in jobs if job.is_on(node)), None)
        if _is_ours(node, job):
            continue
        step = _node(snapshot, node, job)
        steps.append(step)
        if step.doing is Doing.TAKE_OVER:
            taken.add(node.name)
    return [*steps, *(_job(job, taken) for job in sorted(jobs, key=lambda job: job.place))]


def _is_ours(node: NodeView, job: PeerJob | None) -> bool:
    """Return whether the label of KWasm is missing, or set by Trellis: it comes with any verified Shim."""
    if node.provisioned is None or KWASM in node.installed:
        return True
    return node.marked_digest is not None and job is None


def _node(snapshot: ClusterSnapshot, node: NodeView, job: PeerJob | None) -> Step:
    what = f"labelled {names.LABEL_PROVISIONED}={node.provisioned}"
    if reason := _unfit(snapshot, node, job):
        return Step(f"Node {node.name}", what, Doing.LEAVE, reason)
    configured = snapshot.rules.installer
    image = job.image if job and job.image else configured.image
    cause = _verification_text(node, configured.handler)
    if job is None:
        cause += f"; the KWasm Job no longer exists, assuming image {image}"
    elif image != configured.image:
        cause += (
            f"; installed from {image}, but the provisioner uses {configured.image or 'no such image'}: set its "
            "TRELLIS_INSTALLER_IMAGE to the former image to keep the installation"
        )
    verified_by = VerifiedBy.HANDLER if listed(node, configured.handler) is Listed.YES else VerifiedBy.JOB
    return take_over(snapshot, node, {KWASM: snapshot.legacy_digest(image)}, verified_by, (what, cause))


def _verification_text(node: NodeView, handler: str | None) -> str:
    if listed(node, handler) is Listed.YES:
        return f"the kubelet lists the handler {handler!r}"
    lack = "the kubelet lists no handlers" if handler else "the handler of its image is unknown (use --handler)"
    return f"not verified, so it keeps the KWasm label without {names.LABEL_WASM_READY}={names.WASM_READY}: {lack}"


def _unfit(snapshot: ClusterSnapshot, node: NodeView, job: PeerJob | None) -> str:
    """Return why a node is not taken over, "" if it is."""
    if node.provisioned not in {node.name, names.provisioned_label_value(node.name)}:
        return "the label value is not the node name, so KWasm did not provision this node"
    if opt_in_of(node, auto_provision=True) is not OptIn.IN:
        return f"opted out: {names.ANNOTATION_OPT_IN} is {node.opt_in!r}"
    if opt_in_of(node, auto_provision=snapshot.rules.auto_provision) is not OptIn.IN:
        return (
            f"not opted in: annotate it {names.ANNOTATION_OPT_IN}=true, or use --auto-provision if the provisioner "
            "runs with TRELLIS_AUTO_PROVISION"
        )
    if not snapshot.rules.installer.image and (job is None or not job.image):
        return "the KWasm Job no longer exists, so its image is unknown: use --installer-image"
    if KWASM not in snapshot.wanted(node):
        return "a Shim is labelled as KWasm's default: Trellis rolls it out and keeps the label until then"
    if job is not None and job.state is not JobState.COMPLETE:
        if job.state is JobState.ACTIVE:
            return f"{job.place} still works on it: rerun the command after it has ended"
        return f"{job.place} failed, so the label is wrong: Trellis will install it"
    if listed(node, handler := snapshot.rules.installer.handler) is Listed.NO:
        return f"the kubelet lists handlers, and {handler!r} is none of them: Trellis will install it"
    return ""


def _job(job: PeerJob, taken: set[str]) -> Step:
    what = f"KWasm's installer on node {job.node}"
    if job.state is JobState.ACTIVE:
        return Step(job.place, what, Doing.LEAVE, "still running")
    if job.node not in taken:
        return Step(job.place, what, Doing.LEAVE, "its node is not taken over")
    if job.state is JobState.FAILED:
        return Step(job.place, what, Doing.LEAVE, "failed: see its log")
    return Step(job.place, what, Doing.DELETE, "finished, and its node is taken over", DeleteJob(job), job.node)
