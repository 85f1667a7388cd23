"""State of a wasmCloud host group, and its cause: required objects, pods, lattice, field managers.

Pure. In: the WasmCloudHostConfig, pods of hosts. Out: health, the page, and the cause alone. Called by ``explain``,
``status`` and ``entities``. Source of the conditions: ``host_manager.domain.status``, ``host_manager.lattice_status``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from trellis import names
from trellis.lattice.domain.service_views import PodView
from trellis.read_model.explain.page import HEALTHY, PULL_FAILED, Explanation, Line, Rank, condition, reason_and_message
from trellis.read_model.explain.subject import Beside, Subject, cause_of, looked_at, verdict_of
from trellis.read_model.health import Health, Verdict

Manifest = Mapping[str, Any]

MANAGER: Final = "host-manager"
SUBJECT: Final = Subject("WasmCloudHostConfig", "hostgroup", "kubectl get wasmcloudhostconfigs -A")
_CRASH: Final = frozenset({"CrashLoopBackOff", "Error", "OOMKilled"})
_MISSING: Final = frozenset({"SecretMissing", "ConfigMapMissing"})
_REFUSED: Final = ("refused the user", "uthorization", "demands a certificate")
_PODS_SHOWN: Final = 10
_OF_APPLICATIONS: Final = frozenset({"wadm", "applications"})
"""Steps of a lattice that do not change the health of its host groups, as in their condition Ready."""
OTHER: Final = "OtherControllerActive"
HEARTBEAT_MISSING: Final = "HeartbeatMissing"
UNHEARD: Final = frozenset({"LatticeUnreachable", "LatticeNotConnected"})
"""Reasons for which the state of the hosts in the lattice is unknown."""


def explain_group(found: Manifest, beside: Beside) -> Explanation:
    """Return the page of a group."""
    return SUBJECT.page(found, _chain(found), beside, group_health(found))


def group_cause(group: Manifest) -> Line | None:
    """Return the cause of a group that is not healthy, None if it is: as its page has it, without the service."""
    return cause_of(_chain(group))


def group_health(group: Manifest) -> Verdict:
    """Return the health of a group."""
    return verdict_of(group_cause(group), str(_available(group.get("status") or {}).get("reason") or HEALTHY))


def host_health(pod: PodView, reported: str, group: Verdict | None) -> Verdict:
    """Return the health of a host. ``reported``: as in the status of its ``group``, whose health is None if not read.

    The pod alone does not show whether the lattice has the host: while the lattice is unreachable it is unknown.
    """
    if pod.terminating:
        return Verdict(Health.PROGRESSING, "PodTerminating", "its pod is terminating")
    if not pod.serving:
        return Verdict(Health.PROGRESSING, "PodNotReady", "its pod is not ready")
    if reported == "No":
        return Verdict(
            Health.DEGRADED, HEARTBEAT_MISSING, "its pod is ready, but the lattice receives no heartbeat of it"
        )
    if group is None:
        return Verdict(Health.UNKNOWN, "HostGroupUnknown", "its pod is ready, but its host group is unknown")
    if group.reason in UNHEARD:
        return Verdict(Health.UNKNOWN, group.reason, group.message)
    if reported == "Unknown":
        return Verdict(Health.UNKNOWN, "NotReported", "its pod is ready, but the lattice has not reported the host yet")
    return Verdict(Health.HEALTHY, "HostReported")


def _chain(group: Manifest) -> Iterator[Line]:
    metadata, status, spec = group["metadata"], group.get("status") or {}, group.get("spec") or {}
    lattice = str(spec.get("lattice") or "")
    deleting = "; it is being deleted" if metadata.get("deletionTimestamp") else ""
    text = f"{metadata['namespace']}/{metadata['name']} of lattice {lattice}{deleting}"
    yield Line("group", text, ok=not deleting, reason="Deleting")
    other = condition(status, OTHER)
    if other.get("status") == "True":
        yield Line(
            "other controller", reason_and_message(other), False, "", Rank.CAUSE, str(other.get("reason") or OTHER)
        )
        return
    yield looked_at(group, MANAGER)
    yield _degraded(metadata["namespace"], condition(status, "Degraded"))
    yield from _counts(status)
    for line in lattice_lines(metadata["namespace"], spec, status):
        # Hosts do not need wadm: an unknown state of applications concerns the applications only.
        yield replace(line, rank=Rank.ASIDE) if line.about in _OF_APPLICATIONS else line
    yield from _hosts(status)


def _degraded(namespace: str, degraded: Manifest) -> Line:
    if degraded.get("status") != "True":
        return Line("degraded", "no problem of its pods is known", ok=True if degraded else None)
    reason, message = str(degraded.get("reason") or ""), str(degraded.get("message") or "")
    text, do = f"{reason}: {message}", ""
    if reason in _MISSING and " is missing: " in message:
        # A message can name several, each with its resolution.
        text, _, do = message.partition(": ") if " · " not in message else (message, "", "")
    elif reason in PULL_FAILED:
        text = f"the image of its hosts cannot be pulled: {text}"
        do = "check spec.image, spec.natsLeafImage and spec.imagePullSecrets, and that the registry is reachable"
    elif reason in _CRASH:
        pod = message.rpartition("(pod ")[2].partition(",")[0]
        do = f"`kubectl logs -n {namespace} {pod} --all-containers --previous` shows the error"
    elif "exceeded quota: " in message:
        quota = message.partition("exceeded quota: ")[2].partition(",")[0]
        text = f"the API server rejects its pods: {message}"
        do = f"increase ResourceQuota {quota} of namespace {namespace}, or reduce the number of hosts"
    return Line("degraded", text, False, do, Rank.CAUSE, reason)


def _available(status: Manifest) -> Manifest:
    return condition(status, "Available")


def _counts(status: Manifest) -> Iterator[Line]:
    available, progressing = _available(status), condition(status, "Progressing")
    if progressing.get("status") == "True":
        # Ready is False then, even if all hosts of the former template are ready.
        yield Line("progress", reason_and_message(progressing), ok=False, reason=str(progressing.get("reason") or ""))
    if available:
        reason = str(available.get("reason") or "")
        missing = Health.MISSING if reason == "NotCreated" else None
        text = str(available.get("message") or reason)
        yield Line("hosts", text, ok=available.get("status") == "True", reason=reason, state=missing)


def lattice_lines(namespace: str, spec: Manifest, status: Manifest) -> Iterator[Line]:
    """Yield the connection to a group's lattice and to wadm in it, by its conditions, with resolutions."""
    lattice = str(spec.get("lattice") or "")
    reported, known = condition(status, "HostsReporting"), condition(status, "ApplicationsKnown")
    if reported.get("status") in {"False", "Unknown"}:
        yield _not_reporting(namespace, spec, reported)
    elif reported:
        yield Line("lattice", str(reported.get("message") or lattice), ok=True)
    if known.get("reason") == "WadmUnavailable":
        text = f"wadm of lattice {lattice} does not respond: {known.get('message')}"
        do = "start wadm, or read its log; running hosts are not affected"
        yield Line("wadm", text, False, do, Rank.CAUSE, "WadmUnavailable", Health.UNKNOWN)
    synced = condition(status, names.CONDITION_APPLICATIONS_SYNCED)
    if synced.get("status") in {"False", "Unknown"} and known.get("reason") != "LatticeUnreachable":
        yield Line("applications", reason_and_message(synced), ok=False, reason=str(synced.get("reason") or ""))


def _not_reporting(namespace: str, spec: Manifest, reporting: Manifest) -> Line:
    reason, message = str(reporting.get("reason") or ""), str(reporting.get("message") or "")
    if reason == "HostIDUnknown":
        return Line("lattice", f"{reason}: {message}")  # the template of an adopted group is kept
    if reason == "WaitingForHosts":
        return Line("lattice", f"{reason}: {message}", ok=False, reason=reason)
    if reason not in UNHEARD:
        return Line("lattice", f"{reason}: {message}", ok=False, rank=Rank.CAUSE, reason=reason)
    secret = spec.get("secretName")
    if any(word in message for word in _REFUSED):
        have = f"the credentials in Secret {namespace}/{secret}" if secret else "spec.secretName, which is empty,"
        do = f"compare {have} with the users of this NATS server"
    else:
        do = "check spec.natsAddress and spec.natsClientPort, and that NATS runs there and is reachable"
    # A connection that is being opened explains no pod that does not start.
    rank = Rank.SYMPTOM if reason == "LatticeNotConnected" else Rank.CAUSE
    return Line("lattice", f"{reason}: {message}", False, do, rank, reason, Health.UNKNOWN)


def _hosts(status: Manifest) -> Iterator[Line]:
    hosts = status.get("hosts") or ()
    for host in hosts[:_PODS_SHOWN]:
        reported = {"Yes": "reported by the lattice", "No": "heartbeat missing"}.get(str(host.get("reported")), "")
        ready = "ready" if host.get("ready") else "not ready"
        text = ", ".join(filter(None, (f"pod {host.get('pod')} {ready}", reported, str(host.get("id") or ""))))
        yield Line("host", text, bool(host.get("ready")), rank=Rank.ASIDE)
    if len(hosts) > _PODS_SHOWN:
        yield Line("host", f"and {len(hosts) - _PODS_SHOWN} more in its status")
