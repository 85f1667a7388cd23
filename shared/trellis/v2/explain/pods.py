"""State of the pods of host groups as the cause of missing hosts.

Pure. In: a pod in its cluster. Out: steps and texts. Called by the pages of hosts, host groups and workloads.
Invariants: a pod that could not be read is unknown and never absent; an absent pod is concluded only from the pods of
all namespaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trellis.read_model.explain.page import PULL_FAILED, Line, Rank
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.text import in_seconds, number_of, quoted, unknown
from trellis.v2.hosts import HostView
from trellis.v2.pods import STARTING, HostPod
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part

_CRASHED: Final = frozenset({"CrashLoopBackOff", "Error", "OOMKilled", "ContainerCannotRun", "StartError"})
_UNSCHEDULABLE: Final = frozenset({"Unschedulable", "SchedulingGated"})
_SHOWN: Final = 3


def pod_trouble(cluster: Cluster, pod: HostPod) -> Line | None:
    """Return why a pod does not run a registered host; None if it does, and for one that is being deleted."""
    if pod.meta.deleting:
        return None
    if pod.ready:
        return _without_host(cluster, pod)
    text = f"pod {pod.meta.key} {state_of(pod)}"
    logs = f"`kubectl logs -n {pod.meta.namespace} {pod.meta.name} --all-containers"
    describe = f"`kubectl describe pod -n {pod.meta.namespace} {pod.meta.name}`"
    if pod.reason in PULL_FAILED:
        do = f"check the image and its pull Secret in the Deployment of the host group: {describe}"
        return _cause(text, do, Reason.POD_PULL_FAILED)
    if pod.reason in _CRASHED or (pod.exit and not pod.ended):
        return _cause(text, f"{logs} --previous` shows the error", Reason.POD_CRASHING)
    if pod.reason in _UNSCHEDULABLE:
        return _cause(text, f"add a node that fits, or change its requests: {describe}", Reason.POD_UNSCHEDULABLE)
    if pod.ended or pod.reason not in STARTING:
        return _cause(text, f"{describe} shows its Events", Reason.POD_FAILED)
    reason = Reason.POD_STARTING if pod.pending or not pod.phase else Reason.POD_NOT_READY
    return Line("pod", text, False, describe, reason=reason)


def state_of(pod: HostPod) -> str:
    """Return the state of a pod as a predicate: ``is not ready (CrashLoopBackOff: …)``."""
    if pod.meta.deleting:
        return "is being deleted"
    if pod.ready:
        return "is ready"
    found = ": ".join(filter(None, (pod.reason, pod.message or pod.exit)))
    if pod.message and pod.exit:
        found += f"; {pod.exit}"
    more = f", {number_of(pod.restarts, 'restart')}" if pod.restarts else ""
    return f"is {'not ready' if pod.phase in {'Running', ''} else pod.phase}{quoted(found)}{more}"


def _without_host(cluster: Cluster, pod: HostPod) -> Line | None:
    """Return the step for a pod that is ready and has no Host; None if it has one, or if that is not known."""
    if not cluster.snapshot.knows(Part.HOSTS) or cluster.hosts_at(pod):
        return None
    timings, age = cluster.snapshot.timings, cluster.age(pod.since)
    address = ", ".join(pod.addresses) or "unknown"
    if age is None or age <= timings.heartbeat + timings.slack:
        return Line("pod", f"pod {pod.meta.key} is ready and not registered yet", ok=False, reason=Reason.WAITING)
    text = f"pod {pod.meta.key} has been ready for {in_seconds(age)}, and no Host has its address {address}"
    do = (
        f"check in its log that it reaches the NATS of the runtime-operator: `kubectl logs -n {pod.meta.namespace} "
        f"{pod.meta.name} --all-containers`; --host-name has to be the IP address of the pod"
    )
    if cluster.operator.unavailable:
        # Nothing registers hosts then.
        return Line("pod", text, False, do, Rank.SYMPTOM, Reason.POD_WITHOUT_HOST, Health.UNKNOWN)
    return _cause(text, do, Reason.POD_WITHOUT_HOST)


def pod_line(cluster: Cluster, host: HostView) -> Line:
    """Return the step of the page of a host about its pod."""
    pod = cluster.pod_of(host)
    if pod is not None:
        where = f" on node {pod.node}" if pod.node else ""
        return Line("pod", f"{pod.meta.key}{where} {state_of(pod)}", ok=True if pod.ready else None)
    if reason := unknown(cluster, Part.PODS):
        return Line("pod", f"unknown: {reason}")
    text = f"no pod of a host group has its address {host.address or '(none)'}"
    return Line("pod", f"{text}: the host runs outside of this cluster, or its pod was deleted")


def pod_beside(cluster: Cluster, host: HostView) -> tuple[str, str]:
    """Return the state of the pod of a host without heartbeats, and the resolution; "" if nothing is known."""
    pod = cluster.pod_of(host)
    if pod is None:
        known = cluster.snapshot.knows_all(Part.PODS)
        return (f"no pod of a host group has its address {host.address}" if known and host.address else ""), ""
    trouble = pod_trouble(cluster, pod)
    if trouble is not None:
        return f"its {trouble.text}", trouble.do
    logs = f"`kubectl logs -n {pod.meta.namespace} {pod.meta.name} --all-containers`"
    restarted = (
        f" after {number_of(pod.restarts, 'restart')}; each start of a host is another Host" if pod.restarts else ""
    )
    return f"its pod {pod.meta.key} {state_of(pod)}{restarted}", f"{logs} shows its connection to NATS"


def pods_of_groups(cluster: Cluster, group: str = "") -> tuple[str, str]:
    """Return the state of the pods of host groups in place of missing hosts, and a resolution; "" if there are none.

    ``group``: name of the only host group that counts, "" for all.
    """
    if not cluster.snapshot.knows(Part.PODS):
        return f"the pods of host groups are unknown: {unknown(cluster, Part.PODS)}", ""
    pods = [pod for pod in cluster.pods if not pod.meta.deleting and (not group or pod.group == group)]
    pods = [pod for pod in pods if not pod.ended] or pods
    if not pods:
        return "", ""
    lines = sorted((line for pod in pods if (line := pod_trouble(cluster, pod)) is not None), key=lambda it: -it.rank)
    ready = sum(pod.ready for pod in pods)
    of = f"of host group {group}" if group else "of host groups"
    found = f"{ready} of {len(pods)} pods {of} {'is' if ready == 1 else 'are'} ready"
    if not lines:
        return found, ""
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return f"{found}: {'; '.join(line.text for line in lines[:_SHOWN])}{more}", lines[0].do


def grouped(lines: Sequence[Line], count: int, noun: str) -> list[Line]:
    """Return one step for each reason of several objects, the worst first; ``count``: number of all of them."""
    by_reason: dict[str, list[Line]] = {}
    for line in lines:
        by_reason.setdefault(line.reason, []).append(line)
    found = []
    for same in sorted(by_reason.values(), key=lambda each: (-each[0].rank, -len(each), each[0].text)):
        first = same[0]
        share = f"{len(same)} of {count} {noun}: " if count > 1 else ""
        found.append(Line(first.about, f"{share}{first.text}", False, first.do, first.rank, first.reason, first.state))
    return found


def _cause(text: str, do: str, reason: Reason) -> Line:
    return Line("pod", text, False, do, Rank.CAUSE, reason)
