"""What keeps an installer Job from its end, in the words of Kubernetes and of the installer.

Pure. In: raw Jobs, their pods and Events; what stands on Nodes of failures. Out: steps of a page, and causes by node.
Called by ``explain_node``, ``explain_shim`` and ``status``, so that all three name one cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from trellis import names
from trellis.installer_api.result import FailureReason
from trellis.provisioning.installer_pods import SUSPENDED, installer_state, refused_pod
from trellis.provisioning.nodes_and_jobs import view_job
from trellis.provisioning.reasons import APPLY_AGAIN, NO_POD, NODE_UPDATE_REFUSED, Reason
from trellis.provisioning.views import JobState, JobView, NodeView, recorded_on
from trellis.read_model.explain.page import PULL_FAILED, Line, Rank, told_since, warnings_of, words

Manifest = Mapping[str, Any]

_LABEL_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_LACKED: Final = re.compile(r"Unable to retrieve some image pull secrets \((?P<names>[^)]*)\)")
"""What the kubelet says in an Event; it pulls all the same, without the Secret."""
_CREATE: Final = " is not there: create it"
"""Of the installer, which says itself what to do about a pull secret of a Shim."""
_PULL_SECRETS: Final = "TRELLIS_INSTALLER_PULL_SECRETS of provisioner"
_QUOTA: Final = re.compile(r"exceeded quota: (?P<name>[^,\s]+)")
_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']+)'")
_WEBHOOK: Final = re.compile(r'admission webhook "(?P<name>[^"]+)"')
_LACKS: Final = re.compile(r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)"')
_ATTEMPT: Final = re.compile(r"attempt \d+: ")
_REASON: Final = re.compile(r"(?:[A-Z][A-Za-z]+: )+")
_LOG: Final = "`kubectl logs -n {namespace} job/{name}` shows the installer's log, while the Job is there"
_ADVICE: Final[Mapping[str, str]] = {
    FailureReason.CHECKSUM_MISMATCH: "give the Shim the sha256 of the file that is to be there, or mend its source",
    FailureReason.CHECKSUM_MISSING: "give the source in the Shim's spec.fetchStrategy a sha256, or the image a digest",
    FailureReason.DOWNLOAD_FAILED: "see that the node reaches the source in the Shim's spec.fetchStrategy",
    FailureReason.NO_SOURCE: "give the Shim's spec.fetchStrategy a source for this architecture",
    FailureReason.NO_SPACE: "make room on the node's disk",
    FailureReason.READ_ONLY_TARGET: "the installer found no directory that it may write to on this node",
    FailureReason.SHIM_NOT_EXECUTABLE: "take a build of the shim that runs on this node",
    FailureReason.RESTART_FAILED: "see the container runtime's log on the node",
    FailureReason.RUNTIME_START_FAILED: "see the container runtime's log on the node",
    "HandlerMissing": "see that the shim installs a handler of this name, and the container runtime's log on the node",
    "CanaryFailed": "take a shim that can run the canary, or name another in the Shim's spec.verify.canaryImage",
    "NodeNotReady": "see the kubelet on the node; what was begun is tried again once it is ready",
}


def job_lines(job: Manifest, pods: Sequence[Manifest], events: Sequence[Manifest]) -> Iterator[Line]:
    """Yield the steps of a node's newest Job: how far it is, and what keeps it from going on."""
    view = view_job(dict(job))
    text = f"{view.namespace}/{view.name}, attempt {view.attempt}: {_state(view)}"
    yield Line("job", text, well=None if view.state is JobState.ACTIVE else view.state is JobState.COMPLETE)
    if view.state is not JobState.ACTIVE:
        return
    if (held := held_up(job, pods, events)) is not None:
        yield held


def _state(view: JobView) -> str:
    if view.state is JobState.ACTIVE:
        return "suspended" if view.suspended else f"at work{f'; {view.given_up}' if view.given_up else ''}"
    return view.condition or view.state.value


def held_up(job: Manifest, pods: Sequence[Manifest], events: Sequence[Manifest]) -> Line | None:
    """Return what keeps an active Job from going on, None if it is at work."""
    metadata = job["metadata"]
    if (job.get("spec") or {}).get("suspend"):
        return _no_pod(metadata["namespace"], SUSPENDED)
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(_LABEL_JOB_NAME) == metadata["name"]]
    if not mine:
        told = [one for one in warnings_of(events, metadata["uid"]) if one.get("reason") == "FailedCreate"]
        return _no_pod(metadata["namespace"], refused_pod(told[0])) if told else None
    pod = max(mine, key=lambda one: str(one["metadata"].get("creationTimestamp") or ""))
    return _waits(pod, warnings_of(events, pod["metadata"]["uid"]))


def _no_pod(namespace: str, message: str) -> Line:
    if SUSPENDED in message:
        do = f"exempt namespace {namespace} there, or resume it"
        return Line("pod", f"its installer {SUSPENDED}", well=False, do=do, rank=Rank.CAUSE)
    text = f"the API server refuses the installer's pod: {_refusal(message)}"
    return Line("pod", text, well=False, do=refusal_advice(message, namespace), rank=Rank.CAUSE)


def _refusal(message: str) -> str:
    """Return what was refused without the words that all refusals begin with, and without what to do about it."""
    return (message.partition(" is forbidden: ")[2] or message).removesuffix(f"; {APPLY_AGAIN}")


def refusal_advice(message: str, namespace: str) -> str:
    """Return what to do about something that the API server did not let be created."""
    if found := _QUOTA.search(message):
        return (
            f"raise ResourceQuota {found['name']} of namespace {namespace}: `kubectl describe resourcequota "
            f"{found['name']} -n {namespace}`"
        )
    if "violates PodSecurity" in message:
        return f"label namespace {namespace} pod-security.kubernetes.io/enforce=privileged"
    if found := _POLICY.search(message):
        return f"change ValidatingAdmissionPolicy {found['name']}, or exempt the service's account from it"
    if found := _WEBHOOK.search(message):
        return f"change what admission webhook {found['name']} refuses, or exempt the service's account from it"
    if found := _LACKS.search(message):
        return f"give the account the permission to {found['verb']} {found['resource']}: {APPLY_AGAIN}"
    return "let it pass, or have what refuses it mended"


def _waits(pod: Manifest, warnings: Sequence[Manifest]) -> Line | None:
    metadata, state = pod["metadata"], installer_state(dict(pod))
    where = f"{metadata['namespace']}/{metadata['name']}"
    reason = state.waiting.partition(":")[0]
    if reason in PULL_FAILED:
        return _no_image(metadata["namespace"], state.waiting, warnings)
    see = f"`kubectl describe pod -n {metadata['namespace']} {metadata['name']}`"
    if state.waiting:
        return Line("pod", f"{where} waits: {state.waiting}", well=False, do=see, rank=Rank.CAUSE)
    if (pod.get("status") or {}).get("phase") == "Pending" and warnings:
        return Line("pod", f"{where} does not start: {words(warnings[0])}", well=False, do=see, rank=Rank.CAUSE)
    return None


def _no_image(namespace: str, waiting: str, warnings: Sequence[Manifest]) -> Line:
    text = f"the image of the installer cannot be pulled: {waiting}"
    do = f"check the image's name, that its registry is reached, and the pull secret of namespace {namespace}"
    if found := next(filter(None, (_LACKED.search(str(one.get("message"))) for one in warnings)), None):
        text = f"the image of the installer cannot be pulled, Secret {namespace}/{found['names']} is missing: {waiting}"
        do = f"create it, of type kubernetes.io/dockerconfigjson, or name another: {_PULL_SECRETS}"
    return Line("pod", text, well=False, do=do, rank=Rank.CAUSE)


def failure_line(failure: str, job: JobView | None) -> Line:
    """Return the step of the last failure, from what stands on the Node or the Job."""
    text = _ATTEMPT.sub("", failure, count=1)
    found = _REASON.match(text)
    reasons = found[0].split(": ")[:-1] if found else []
    # The nearest to the cause comes last: InstallerFailed: ChecksumMismatch: …
    do = next((_ADVICE[reason] for reason in reversed(reasons) if reason in _ADVICE), "")
    if "lists no runtime handlers at all" in text:
        do = "bring its kubelet and container runtime up to date, or have a pod prove it: spec.verify.canaryImage"
    if _CREATE in text:
        text, _, do = text.partition(": create it")
        do = f"create it{do}"
    if not do and job is not None:
        do = _LOG.format(namespace=job.namespace, name=job.name)
    if len(reasons) > 1:
        text = f"{reasons[-1]}: {text[len(found[0]) :] if found else text}"
    return Line("last failure", text, well=False, do=do, rank=Rank.CAUSE)


def refused_job(events: Iterable[Manifest], uid: str, namespace: str) -> Line | None:
    """Return the step of a Job, or of its pod, that the API server did not take, None if there is none."""
    reasons = {Reason.JOB_REFUSED, Reason.INSTALLER_REFUSED}
    told = [one for one in warnings_of(events, uid) if one.get("reason") in reasons]
    if not told:
        return None
    message = str(told[0].get("message") or "")
    if told[0].get("reason") == Reason.INSTALLER_REFUSED:
        return _no_pod(namespace, message) if NO_POD in message else None
    text = f"the API server refuses the installer's Job: {_refusal(message)}"
    return Line("job", text, well=False, do=refusal_advice(message, namespace), rank=Rank.CAUSE)


def since_outcome(events: Sequence[Manifest], view: NodeView) -> list[Manifest]:
    """Return the Events without those from before the last outcome that is recorded on the Node."""
    recorded = recorded_on(view)
    told = [(one, (one.get("metadata") or {}).get("annotations") or {}) for one in events]
    return [one for one, marks in told if all(marks.get(name, value) == value for name, value in recorded.items())]


def refused_by_node(
    events: Sequence[Manifest], jobs: Iterable[Manifest], nodes: Iterable[NodeView], namespace: str
) -> dict[str, Line]:
    """Return which Jobs the API server did not take, by the name of their node.

    An Event stays for an hour: what was refused is no trouble any more where there is a Job by now, or an outcome was
    recorded since.
    """
    views = {node.uid: node for node in nodes}
    taken = {str((job["metadata"].get("labels") or {}).get(names.LABEL_NODE_UID)) for job in jobs}
    found: dict[str, Line] = {}
    for uid, told in _by_uid(events).items():
        current = since_outcome(told, views[uid]) if uid in views else told
        line = None if uid in taken else refused_job(current, uid, namespace)
        if line is not None:
            found[str(told[0]["involvedObject"].get("name"))] = line
    return found


def unlabelled_by_node(events: Sequence[Manifest], jobs: Iterable[Manifest]) -> dict[str, Line]:
    """Return which Nodes the API server does not let be labelled though their Job is done, by name.

    An Event stays for an hour: one from before the Job is about a former one.
    """
    told, found = _by_uid(events), dict[str, Line]()
    for raw in jobs:
        job = view_job(dict(raw))
        warnings = warnings_of(told_since(told.get(job.node_uid, ()), raw), job.node_uid)
        if warnings and job.state is JobState.COMPLETE:
            message = str(warnings[0].get("message") or "no reason given")
            text, do = f"{NODE_UPDATE_REFUSED}: {message}", refusal_advice(message, job.namespace)
            found[job.node] = Line("labels", text, well=False, do=do, rank=Rank.CAUSE)
    return found


def held_up_by_node(jobs: Iterable[Manifest], pods: Sequence[Manifest], events: Sequence[Manifest]) -> dict[str, Line]:
    """Return what keeps Jobs from going on, by the name of their node."""
    told, of_job = _by_uid(events), _by_job(pods)
    found: dict[str, Line] = {}
    for job in jobs:
        if view_job(dict(job)).state is not JobState.ACTIVE:
            continue
        mine = of_job.get(job["metadata"]["name"], ())
        uids = [str(one["metadata"]["uid"]) for one in (job, *mine)]
        held = held_up(job, mine, [event for uid in uids for event in told.get(uid, ())])
        if held is not None:
            found[str((job["metadata"].get("annotations") or {}).get(names.ANNOTATION_NODE, ""))] = held
    return found


def _by_uid(events: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Return Events by the object that they are about, so that all are looked through once, not once a Job."""
    found: dict[str, list[Manifest]] = {}
    for one in events:
        found.setdefault(str((one.get("involvedObject") or {}).get("uid")), []).append(one)
    return found


def _by_job(pods: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for pod in pods:
        found.setdefault(str((pod["metadata"].get("labels") or {}).get(_LABEL_JOB_NAME)), []).append(pod)
    return found
