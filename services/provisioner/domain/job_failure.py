"""Describes a Job that failed: the message, the event, and the Shims that caused the failure.

Pure. In: a Job, the result of its installer, its Node. Out: messages, events, verdicts. Called by ``decide`` and
``verification``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from provisioner.domain.actions import Action, JudgeFailed, Publish
from trellis.events.provision import ProvisionFailed
from trellis.installer_api.result import InstallResult, parse_result
from trellis.provisioning.installer_pods import InstallerState
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import JobView, NodeView, encode_digests


def blame(job: JobView, shims: Iterable[str]) -> str:
    """Return Shims of a Job with their versions, in the format of the annotation for the cause of a failure."""
    return encode_digests({name: job.shims[name] for name in shims})


def judge(
    job: JobView, reason: Reason, message: str, *, disruptive: bool = False, blamed: str | None = None
) -> list[Action]:
    """Return the actions for a failed Job: the event, then the verdict on the Job. ``blamed``: as on the Job."""
    event = ProvisionFailed(**about(job), reason=reason.value, message=message)
    return [Publish(event, f"{job.uid}.failed", job), JudgeFailed(job, reason, message, disruptive, blamed)]


def unlike(job: JobView, node: NodeView) -> str:
    """Return how a node's runtime handlers differ from those that its Job installs, and what to check."""
    if not node.handlers:
        unlisted = (
            f"lists no runtime handlers at all, so not {', '.join(map(repr, sorted(job.handlers)))}: "
            f"{node.runtime_version or 'its container runtime'} or its kubelet is too old for that"
        )
        return unlisted if job.installs is None else f"{unlisted}, and no pod tried it: set spec.verify.canaryImage"
    missing, left = job.handlers - node.handlers, job.removed_handlers & node.handlers
    parts = [("does not list", missing), ("still lists", left)]
    differences = " and ".join(
        f"{verb} the runtime handler {', '.join(map(repr, sorted(of)))}" for verb, of in parts if of
    )
    return (
        f"{differences} (it lists: {', '.join(sorted(filter(None, node.handlers))) or 'none'}): "
        "check containerd's log on the node, and that the image installs this handler"
    )


def failure_message(job: JobView, installer: InstallerState | None) -> str:
    """Return the error of the Trellis installer; for another one the state of Job and pod, and its last log lines."""
    installer = installer or InstallerState()
    result = parse_result(installer.log_tail)
    if result is not None and not result.ok:
        return _answer(result)
    parts = [job.condition or "the Job failed", installer.terminated, installer.waiting]
    text = "; ".join(part for part in parts if part)
    return f"{text}; last log lines: {installer.log_tail.strip()}" if installer.log_tail.strip() else text


def result_of(installer: InstallerState | None) -> InstallResult | None:
    """Return the result of the Trellis installer; None for another installer, or without a result."""
    return parse_result(installer.log_tail) if installer else None


def blamed_by(job: JobView, result: InstallResult | None) -> str | None:
    """Return the shims that an installer's result names as the cause of the failure; None if it names none.

    It names them by handler and version; a version belongs to one Shim, because the handler is a part of it.
    """
    if result is None or job.installs is None:
        return None
    broken = {shim.digest for shim in result.shims if shim.problem}
    return encode_digests({name: digest for name, digest in job.shims.items() if digest in broken}) or None


def _answer(result: InstallResult) -> str:
    problems = [
        f"{shim.handler}: {shim.problem}"
        for shim in result.shims
        if shim.problem and shim.problem not in result.message
    ]
    messages = "; ".join(dict.fromkeys([result.message, *problems]))
    text = f"{result.reason or result.outcome}: {messages}"
    return f"{text} (the container runtime was restarted)" if result.restarted else text


def about(job: JobView) -> dict[str, Any]:
    """Return the common fields of all events about a Job."""
    return {
        "node": job.node,
        "node_uid": job.node_uid,
        "digest": job.digest,
        "attempt": job.attempt,
        "job": f"{job.namespace}/{job.name}",
    }
