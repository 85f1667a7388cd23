"""The causes that stop an installer Job, as Kubernetes and the installer report them.

Pure. In: raw Jobs, their pods and Events; failures recorded on Nodes. Out: steps of a page, and causes by node.
Called by ``explain.node``, ``explain.shim``, ``tables.nodes`` and ``status``, so that all of them name one cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trellis import names
from trellis.crds.conditions import cause_of_refusal
from trellis.installer_api.result import FailureReason
from trellis.provisioning.attempts import without_attempt
from trellis.provisioning.installer_pods import SUSPENDED, installer_state, refused_pod
from trellis.provisioning.nodes_and_jobs import view_job
from trellis.provisioning.reasons import APPLY_AGAIN, NO_POD, NODE_UPDATE_REFUSED, Reason
from trellis.provisioning.views import JobState, JobView, NodeView, recorded_on
from trellis.read_model.explain.page import (
    PULL_FAILED,
    Line,
    Rank,
    events_since,
    reason_and_message,
    time_of,
    warnings_of,
)

Manifest = Mapping[str, Any]

LABEL_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_LACKED: Final = re.compile(r"Unable to retrieve some image pull secrets \((?P<names>[^)]*)\)")
"""Message of the kubelet in an Event; it still pulls, without the Secret."""
_SECOND: Final = "%Y-%m-%dT%H:%M:%S"
_CREATE: Final = ": create it in the namespace"
"""Part of the installer's message, which contains the resolution for a pull secret of a Shim."""
_PULL_SECRETS: Final = "TRELLIS_INSTALLER_PULL_SECRETS of provisioner"
_QUOTA: Final = re.compile(r"exceeded quota: (?P<name>[^,\s]+)")
_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']+)'")
_WEBHOOK: Final = re.compile(r'admission webhook "(?P<name>[^"]+)"')
_LACKS: Final = re.compile(r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)"')
_REASON: Final = re.compile(r"(?:[A-Z][A-Za-z]+: )+")
_LOG: Final = "`kubectl logs -n {namespace} job/{name}` shows the installer's log, while the Job exists"
_ADVICE: Final[Mapping[str, str]] = {
    FailureReason.CHECKSUM_MISMATCH: "set sha256 of the Shim to the checksum of the intended file, or fix the source",
    FailureReason.CHECKSUM_MISSING: "set sha256 of the source in the Shim's spec.fetchStrategy, or an image digest",
    FailureReason.DOWNLOAD_FAILED: "check that the node can reach the source in the Shim's spec.fetchStrategy",
    FailureReason.NO_SOURCE: "add a source for this architecture to the Shim's spec.fetchStrategy",
    FailureReason.NO_SPACE: "free space on the node's disk",
    FailureReason.READ_ONLY_TARGET: "make one of the installer's target directories writable on this node",
    FailureReason.SHIM_NOT_EXECUTABLE: "use a build of the shim that runs on this node",
    FailureReason.RESTART_FAILED: "read the log of the container runtime on the node",
    FailureReason.RUNTIME_START_FAILED: "read the log of the container runtime on the node",
    "HandlerMissing": "check that the shim installs a handler with this name, and the log of the container runtime",
    "CanaryFailed": "use a shim that can run the canary, or set another image in the Shim's spec.verify.canaryImage",
    "NodeNotReady": "check the kubelet on the node; the installation is retried once the node is ready",
}


def job_lines(job: Manifest, pods: Sequence[Manifest], events: Sequence[Manifest]) -> Iterator[Line]:
    """Yield the steps of a node's newest Job: its state, and the cause that stops it."""
    view = view_job(dict(job))
    text = f"{view.namespace}/{view.name}, attempt {view.attempt}: {_state(view)}"
    yield Line("job", text, ok=None if view.state is JobState.ACTIVE else view.state is JobState.COMPLETE)
    if view.state is not JobState.ACTIVE:
        return
    if (cause := pending_cause(job, pods, events)) is not None:
        yield cause


def _state(view: JobView) -> str:
    if view.state is JobState.ACTIVE:
        return "suspended" if view.suspended else f"running{f'; {view.failure_target}' if view.failure_target else ''}"
    return view.condition or view.state.value


def pending_cause(job: Manifest, pods: Sequence[Manifest], events: Sequence[Manifest]) -> Line | None:
    """Return the cause that stops an active Job, None if it runs."""
    metadata = job["metadata"]
    if (job.get("spec") or {}).get("suspend"):
        return _no_pod(metadata["namespace"], SUSPENDED)
    own = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(LABEL_JOB_NAME) == metadata["name"]]
    if not own:
        warnings = [
            warning for warning in warnings_of(events, metadata["uid"]) if warning.get("reason") == "FailedCreate"
        ]
        return _no_pod(metadata["namespace"], refused_pod(warnings[0])) if warnings else None
    pod = max(own, key=lambda item: str(item["metadata"].get("creationTimestamp") or ""))
    return _waits(pod, warnings_of(events, pod["metadata"]["uid"]))


def stopped_pod(pod: Manifest) -> Line | None:
    """Return the cause that a pod of an installer does not start, by its own status, None if it does."""
    return _waits(pod, ())


def _no_pod(namespace: str, message: str) -> Line:
    if SUSPENDED in message:
        do = f"exempt namespace {namespace} there, or resume it"
        return Line("pod", f"its installer {SUSPENDED}", False, do, Rank.CAUSE, "JobSuspended")
    text = f"the API server rejects the installer's pod: {_refusal(message)}"
    return Line("pod", text, False, refusal_advice(message, namespace), Rank.CAUSE, Reason.INSTALLER_REFUSED.value)


def _refusal(message: str) -> str:
    """Return the rejection without the words that all have in common, and without the resolution."""
    return cause_of_refusal(message).removesuffix(f"; {APPLY_AGAIN}")


def refusal_advice(message: str, namespace: str) -> str:
    """Return the resolution for an object that the API server rejected."""
    if found := _QUOTA.search(message):
        return (
            f"increase ResourceQuota {found['name']} of namespace {namespace}: `kubectl describe resourcequota "
            f"{found['name']} -n {namespace}`"
        )
    if "violates PodSecurity" in message:
        return f"label namespace {namespace} pod-security.kubernetes.io/enforce=privileged"
    if found := _POLICY.search(message):
        return f"change ValidatingAdmissionPolicy {found['name']}, or exempt the service's account from it"
    if found := _WEBHOOK.search(message):
        return f"change the rules of admission webhook {found['name']}, or exempt the service's account from it"
    if found := _LACKS.search(message):
        return f"grant the account permission to {found['verb']} {found['resource']}: {APPLY_AGAIN}"
    return "permit it, or correct the policy that rejects it"


def _waits(pod: Manifest, warnings: Sequence[Manifest]) -> Line | None:
    metadata, state = pod["metadata"], installer_state(dict(pod))
    where = f"{metadata['namespace']}/{metadata['name']}"
    reason = state.waiting.partition(":")[0]
    if reason in PULL_FAILED:
        return _no_image(metadata["namespace"], state.waiting, warnings)
    see = f"`kubectl describe pod -n {metadata['namespace']} {metadata['name']}`"
    if state.waiting:
        return Line("pod", f"{where} waits: {state.waiting}", False, see, Rank.CAUSE, reason)
    if (pod.get("status") or {}).get("phase") == "Pending" and warnings:
        text = f"{where} does not start: {reason_and_message(warnings[0])}"
        return Line("pod", text, False, see, Rank.CAUSE, str(warnings[0].get("reason") or ""))
    return None


def _no_image(namespace: str, waiting: str, warnings: Sequence[Manifest]) -> Line:
    text = f"the image of the installer cannot be pulled: {waiting}"
    do = f"check the image's name, that its registry is reachable, and the pull secret of namespace {namespace}"
    if found := next(filter(None, (_LACKED.search(str(warning.get("message"))) for warning in warnings)), None):
        text = f"the image of the installer cannot be pulled, Secret {namespace}/{found['names']} is missing: {waiting}"
        do = f"create it with type kubernetes.io/dockerconfigjson, or configure another: {_PULL_SECRETS}"
    return Line("pod", text, False, do, Rank.CAUSE, waiting.partition(":")[0])


def failure_line(failure: str, job: JobView | None) -> Line:
    """Return the step of the last failure, as recorded on the Node or the Job."""
    text = without_attempt(failure)
    found = _REASON.match(text)
    reasons = found[0].split(": ")[:-1] if found else []
    # The most specific reason comes last: InstallerFailed: ChecksumMismatch: …
    do = next((_ADVICE[reason] for reason in reversed(reasons) if reason in _ADVICE), "")
    if "lists no runtime handlers at all" in text:
        do = "upgrade its kubelet and container runtime, or verify with a canary pod: spec.verify.canaryImage"
    if _CREATE in text:
        text, _, do = text.partition(": create it")
        do = f"create it{do}"
    if not do and job is not None:
        do = _LOG.format(namespace=job.namespace, name=job.name)
    if len(reasons) > 1:
        text = f"{reasons[-1]}: {text[len(found[0]) :] if found else text}"
    return Line("last failure", text, False, do, Rank.CAUSE, reasons[-1] if reasons else "")


def refused_job(events: Iterable[Manifest], uid: str, namespace: str) -> Line | None:
    """Return the step of a Job, or of its pod, that the API server rejected, None if there is none."""
    reasons = {Reason.JOB_REFUSED, Reason.INSTALLER_REFUSED}
    warnings = [warning for warning in warnings_of(events, uid) if warning.get("reason") in reasons]
    if not warnings:
        return None
    message = str(warnings[0].get("message") or "")
    if warnings[0].get("reason") == Reason.INSTALLER_REFUSED:
        return _no_pod(namespace, message) if NO_POD in message else None
    text = f"the API server rejects the installer's Job: {_refusal(message)}"
    return Line("job", text, False, refusal_advice(message, namespace), Rank.CAUSE, Reason.JOB_REFUSED.value)


def since_outcome(events: Sequence[Manifest], view: NodeView) -> list[Manifest]:
    """Return the Events since the last outcome that is recorded on the Node.

    Those without its annotations are compared with the time of a failure.
    """
    recorded = recorded_on(view)
    failed = datetime.fromtimestamp(view.failed.at, UTC).strftime(_SECOND) if view.failed is not None else ""
    found = []
    for event in events:
        marks, at = (event.get("metadata") or {}).get("annotations") or {}, time_of(event)
        if marks.keys().isdisjoint(recorded):
            current = not at or at[: len(failed)] >= failed
        else:
            current = all(marks.get(name, value) == value for name, value in recorded.items())
        if current:
            found.append(event)
    return found


def refused_by_node(
    events: Sequence[Manifest], jobs: Iterable[Manifest], nodes: Iterable[NodeView], namespace: str
) -> dict[str, Line]:
    """Return the Jobs that the API server rejected, by the name of their node.

    An Event stays for an hour: it does not count if the Job exists now, or if an outcome was recorded since.
    """
    views = {node.uid: node for node in nodes}
    taken = {str((job["metadata"].get("labels") or {}).get(names.LABEL_NODE_UID)) for job in jobs}
    found: dict[str, Line] = {}
    for uid, own in _by_uid(events).items():
        current = since_outcome(own, views[uid]) if uid in views else own
        line = None if uid in taken else refused_job(current, uid, namespace)
        if line is not None:
            found[str(own[0]["involvedObject"].get("name"))] = line
    return found


def unlabelled_by_node(events: Sequence[Manifest], jobs: Iterable[Manifest]) -> dict[str, Line]:
    """Return the Nodes whose labels the API server rejects although their Job succeeded, by name.

    An Event stays for an hour: one from before the Job is about a former Job.
    """
    by_uid, found = _by_uid(events), dict[str, Line]()
    for raw in jobs:
        job = view_job(dict(raw))
        warnings = warnings_of(events_since(by_uid.get(job.node_uid, ()), raw), job.node_uid)
        if warnings and job.state is JobState.COMPLETE:
            message = str(warnings[0].get("message") or "no reason given")
            text, do = f"{NODE_UPDATE_REFUSED}: {message}", refusal_advice(message, job.namespace)
            found[job.node] = Line("labels", text, False, do, Rank.CAUSE, NODE_UPDATE_REFUSED)
    return found


def pending_causes(jobs: Iterable[Manifest], pods: Sequence[Manifest], events: Sequence[Manifest]) -> dict[str, Line]:
    """Return the causes that stop Jobs, by the name of their node."""
    by_uid, of_job = _by_uid(events), _by_job(pods)
    found: dict[str, Line] = {}
    for job in jobs:
        if view_job(dict(job)).state is not JobState.ACTIVE:
            continue
        own = of_job.get(job["metadata"]["name"], ())
        uids = [str(item["metadata"]["uid"]) for item in (job, *own)]
        cause = pending_cause(job, own, [event for uid in uids for event in by_uid.get(uid, ())])
        if cause is not None:
            found[str((job["metadata"].get("annotations") or {}).get(names.ANNOTATION_NODE, ""))] = cause
    return found


def _by_uid(events: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Return Events by their object, so that they are read once, not once per Job."""
    found: dict[str, list[Manifest]] = {}
    for event in events:
        found.setdefault(str((event.get("involvedObject") or {}).get("uid")), []).append(event)
    return found


def _by_job(pods: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for pod in pods:
        found.setdefault(str((pod["metadata"].get("labels") or {}).get(LABEL_JOB_NAME)), []).append(pod)
    return found
