"""State of a host group of wasmCloud v2, and its cause: its pods, its Hosts, and which of them belong together.

Pure. In: a host group in its cluster. Out: health, cause, page. Called by ``explain``, ``status`` and entities.
Invariants: a host group is healthy if all its pods are ready and have a Host that works; without its pods it is
unknown; hosts outside of Kubernetes have no pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Rank
from trellis.read_model.explain.subject import Beside, Subject, cause_of
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import deletion_of, host_trouble
from trellis.v2.explain.operator import operator_lines, verdict_with_operator
from trellis.v2.explain.pods import grouped, pod_trouble, state_of
from trellis.v2.explain.text import unknown
from trellis.v2.explain.workload import WANTED
from trellis.v2.host_groups import HostGroup
from trellis.v2.hosts import HostView
from trellis.v2.pods import POD_SELECTOR
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot

SUBJECT: Final = Subject("host group", "whostgroup", f"kubectl get pods -A -L {POD_SELECTOR}", WANTED)


def explain_host_group(snapshot: Snapshot, group: HostGroup, beside: Beside) -> Explanation:
    """Return the page of a host group."""
    cluster = Cluster(snapshot).within(group.namespace)
    chain = [*_chain(cluster, group)]
    found = {"metadata": {"namespace": group.namespace, "name": group.name}}
    return SUBJECT.page(found, [*chain, *_members(cluster, group)], beside, verdict_with_operator(chain))


def host_group_health(cluster: Cluster, group: HostGroup) -> Verdict:
    """Return the health of a host group."""
    return verdict_with_operator([*_chain(cluster, group)])


def host_group_cause(cluster: Cluster, group: HostGroup) -> Line | None:
    """Return the cause of a host group that is not healthy, None if it is: as its page has it."""
    return cause_of(_chain(cluster, group))


def _chain(cluster: Cluster, group: HostGroup) -> Iterator[Line]:
    cluster = cluster.within(group.namespace)
    pods = str(len(group.live)) if cluster.snapshot.knows(Part.PODS) else "unknown"
    hosts = str(len(group.hosts)) if cluster.snapshot.knows(Part.HOSTS) else "unknown"
    yield Line("group", f"{group.key}, pods: {pods}, Hosts: {hosts}", ok=True)
    yield from operator_lines(cluster)
    found = [*_pods(cluster, group), *_hosts(cluster, group)]
    yield from found
    if not any(line.trouble for line in found):
        yield Line("hosts", f"{len(group.hosts)} of {len(group.hosts)} work", ok=True)


def _pods(cluster: Cluster, group: HostGroup) -> Iterator[Line]:
    if not cluster.snapshot.knows(Part.PODS):
        text = f"its pods are unknown: {unknown(cluster, Part.PODS)}"
        yield Line("pods", text, False, "", Rank.SYMPTOM, Reason.PODS_UNKNOWN, Health.UNKNOWN)
        return
    if limited := unknown(cluster, Part.PODS):
        yield Line("pods", f"those in the namespaces of Hosts: {limited}")
    if not cluster.snapshot.knows(Part.HOSTS):
        text = f"its Hosts are unknown: {unknown(cluster, Part.HOSTS)}"
        yield Line("hosts", text, False, "", Rank.SYMPTOM, Reason.HOSTS_UNKNOWN, Health.UNKNOWN)
    if not group.pods:
        text = f"no pod has the label {POD_SELECTOR}={group.name}: its hosts run outside of this cluster"
        yield Line("pods", text)
    live = group.live or [pod for pod in group.pods if pod.ended and not group.hosts]
    troubles = [line for pod in live if (line := pod_trouble(cluster, pod)) is not None]
    yield from grouped(troubles, len(live), "pods")


def _hosts(cluster: Cluster, group: HostGroup) -> Iterator[Line]:
    lines = [line for host in group.hosts if (line := _host(cluster, group, host)) is not None]
    yield from grouped(lines, len(group.hosts), "hosts")


def _host(cluster: Cluster, group: HostGroup, host: HostView) -> Line | None:
    """Return the problem of a host that its pod does not have already."""
    if host.meta.deleting:
        return None
    pod = cluster.pod_of(host)
    if pod is not None and pod_trouble(cluster, pod) is not None:
        return None
    trouble = host_trouble(cluster, host)
    if pod is not None or not cluster.has_pods(group.namespace, group.name):
        return trouble
    if not cluster.snapshot.knows_all(Part.PODS):
        return trouble
    text = f"Host {host.meta.name} has no pod: none has its address {host.address or '(none)'}"
    if trouble is None or trouble.reason != Reason.HEARTBEAT_MISSING:
        # Its pod was deleted just now, or it runs outside of this cluster.
        return trouble or Line("host", f"{text}, and it sends heartbeats", False, "", reason=Reason.HOST_WITHOUT_POD)
    text = f"{text}, and its heartbeat is missing"
    return Line("host", text, False, deletion_of(cluster, host), Rank.CAUSE, Reason.HOST_WITHOUT_POD)


def _members(cluster: Cluster, group: HostGroup) -> Iterator[Line]:
    """Yield each pod and each Host for its page; they repeat the steps of the chain, and do not change its health."""
    for pod in group.pods:
        hosts = ", ".join(host.meta.name for host in cluster.hosts_at(pod)) or "none"
        where = f" on node {pod.node}" if pod.node else ""
        yield Line("pod", f"{pod.meta.key}{where} {state_of(pod)}; Host: {hosts}")
    for host in group.hosts:
        see = f"`trellis explain whost/{host.meta.name} -n {host.meta.namespace}`"
        yield Line("host", f"{host.meta.name} at {host.address or 'no address'}: {see}")
