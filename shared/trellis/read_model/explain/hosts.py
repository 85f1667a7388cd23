"""Why a group of wasmCloud hosts is, or is not, well: what it names, its pods, its lattice, who writes it.

Pure. In: the WasmCloudHostConfig. Out: the page, and the cause alone. Called by ``explain`` and ``status``.
Source of the conditions: ``host_manager.domain.status`` and ``host_manager.lattice_status``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trellis import names
from trellis.read_model.explain.page import PULL_FAILED, Explanation, Line, Rank, condition, words
from trellis.read_model.explain.subject import Beside, Subject, cause_of, looked_at

Manifest = Mapping[str, Any]

MANAGER: Final = "host-manager"
SUBJECT: Final = Subject("WasmCloudHostConfig", "hostgroup", "kubectl get wasmcloudhostconfigs -A")
_CRASH: Final = frozenset({"CrashLoopBackOff", "Error", "OOMKilled"})
_MISSING: Final = frozenset({"SecretMissing", "ConfigMapMissing"})
_REFUSED: Final = ("refused the user", "uthorization", "demands a certificate")
_PODS_SHOWN: Final = 10


def explain_group(found: Manifest, beside: Beside) -> Explanation:
    """Return the page of a group."""
    return SUBJECT.page(found, _chain(found), beside)


def group_cause(group: Manifest) -> Line | None:
    """Return why a group is not well, None if it is: what its page says, but for the service."""
    return cause_of(_chain(group))


def _chain(group: Manifest) -> Iterator[Line]:
    metadata, status, spec = group["metadata"], group.get("status") or {}, group.get("spec") or {}
    lattice = str(spec.get("lattice") or "")
    going = "; it is being deleted" if metadata.get("deletionTimestamp") else ""
    yield Line("group", f"{metadata['namespace']}/{metadata['name']} on lattice {lattice}{going}", well=not going)
    other = condition(status, "OtherControllerActive")
    if other.get("status") == "True":
        yield Line("held", words(other), well=False, rank=Rank.CAUSE)
        return
    yield looked_at(group, MANAGER)
    yield _degraded(metadata["namespace"], condition(status, "Degraded"))
    yield from _counts(status)
    yield from lattice_lines(metadata["namespace"], spec, status)
    yield from _hosts(status)


def _degraded(namespace: str, said: Manifest) -> Line:
    if said.get("status") != "True":
        return Line("degraded", "nothing is in the way of its pods", well=True if said else None)
    reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    text, do = f"{reason}: {message}", ""
    if reason in _MISSING and " is missing: " in message:
        # Several are told in one message, with what to do about each.
        text, _, do = message.partition(": ") if " · " not in message else (message, "", "")
    elif reason in PULL_FAILED:
        text = f"the image of its hosts cannot be pulled: {text}"
        do = "check spec.image and spec.natsLeafImage, spec.imagePullSecrets, and that the registry is reached"
    elif reason in _CRASH:
        pod = message.removeprefix("pod ").partition(",")[0]
        do = f"`kubectl logs -n {namespace} {pod} --all-containers --previous` shows how it ended"
    elif "exceeded quota: " in message:
        quota = message.partition("exceeded quota: ")[2].partition(",")[0]
        text = f"the API server refuses its pods: {message.partition(' is forbidden: ')[2] or message}"
        do = f"raise ResourceQuota {quota} of namespace {namespace}, or ask for fewer hosts"
    return Line("degraded", text, False, do, Rank.CAUSE)


def _counts(status: Manifest) -> Iterator[Line]:
    available = condition(status, "Available")
    if available:
        text = str(available.get("message") or available.get("reason"))
        yield Line("hosts", text, well=available.get("status") == "True")
    progressing = condition(status, "Progressing")
    if progressing.get("status") == "True":
        yield Line("progress", words(progressing))


def lattice_lines(namespace: str, spec: Manifest, status: Manifest) -> Iterator[Line]:
    """Yield how a group's lattice is heard, and wadm in it: what its conditions say, and what to do."""
    lattice = str(spec.get("lattice") or "")
    reported, known = condition(status, "HostsReporting"), condition(status, "ApplicationsKnown")
    if reported.get("status") in {"False", "Unknown"}:
        yield _silent(namespace, spec, reported)
    elif reported:
        yield Line("lattice", str(reported.get("message") or lattice), well=True)
    if known.get("reason") == "WadmUnavailable":
        text = f"wadm of lattice {lattice} does not answer: {known.get('message')}"
        yield Line("wadm", text, False, "start wadm, or see its log; its hosts run on meanwhile", Rank.CAUSE)
    synced = condition(status, names.CONDITION_APPLICATIONS_SYNCED)
    if synced.get("status") in {"False", "Unknown"} and known.get("reason") != "LatticeUnreachable":
        yield Line("applications", words(synced), well=False)


def _silent(namespace: str, spec: Manifest, said: Manifest) -> Line:
    reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    if reason in {"WaitingForHosts", "HostIDUnknown"}:
        return Line("lattice", f"{reason}: {message}")  # it is new, or as old as it was adopted: no trouble
    if reason not in {"LatticeUnreachable", "LatticeNotConnected"}:
        return Line("lattice", f"{reason}: {message}", well=False, rank=Rank.CAUSE)
    secret = spec.get("secretName")
    if any(word in message for word in _REFUSED):
        have = f"the credentials in Secret {namespace}/{secret}" if secret else "spec.secretName, which names none,"
        do = f"check {have} against the users of that NATS"
    else:
        do = "check spec.natsAddress and spec.natsClientPort, and that NATS runs there and is reached"
    return Line("lattice", f"{reason}: {message}", False, do, Rank.CAUSE)


def _hosts(status: Manifest) -> Iterator[Line]:
    hosts = status.get("hosts") or ()
    for host in hosts[:_PODS_SHOWN]:
        told = {"Yes": "heard of in the lattice", "No": "silent in the lattice"}.get(str(host.get("reported")), "")
        ready = "ready" if host.get("ready") else "not ready"
        text = ", ".join(filter(None, (f"pod {host.get('pod')} {ready}", told, str(host.get("id") or ""))))
        yield Line("host", text, bool(host.get("ready")), rank=Rank.ASIDE)
    if len(hosts) > _PODS_SHOWN:
        yield Line("host", f"and {len(hosts) - _PODS_SHOWN} more in its status")
