"""State of a Service of wasmCloud v2, and its cause: its Workloads, ports, endpoints.

Pure. In: a Service in its cluster. Out: health, page. Called by the page of a Service and by entities. Invariant: a
Service is of wasmCloud v2 if a WorkloadDeployment or Workload names it, or if the runtime-operator wrote endpoints for
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Rank
from trellis.read_model.explain.subject import Absence, Beside, Subject
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import placed
from trellis.v2.explain.operator import operator_lines
from trellis.v2.explain.routing import Routed, endpoints_line, port_line, service_lines
from trellis.v2.explain.text import SUSPENDED, unknown
from trellis.v2.explain.workload import WANTED, manifest_of, template_of, verdict_beside, without_components
from trellis.v2.fields import listed
from trellis.v2.reasons import Reason
from trellis.v2.routes import PORT, RoutedService
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import WorkloadView

SUBJECT: Final = Subject("Service", "service", "kubectl get services -A", WANTED)
_SHOWN: Final = 3


def explain_routed_service(snapshot: Snapshot, service: RoutedService, beside: Beside) -> Explanation:
    """Return the page of a Service."""
    cluster = Cluster(snapshot)
    chain = [*_chain(cluster, service)]
    return SUBJECT.page(manifest_of(service.meta), chain, beside, _verdict(cluster, service, chain))


def explain_no_routed_service(
    snapshot: Snapshot, name: str, namespace: str | None, beside: Beside
) -> Explanation | None:
    """Return the page of a Service that does not exist, None if no WorkloadDeployment and no Workload names it."""
    deployments = [item.meta for item in snapshot.deployments if item.service == name]
    workloads = [item.meta for item in snapshot.workloads if item.spec.service == name]
    for kind, metas in (("WorkloadDeployment", deployments), ("Workload", workloads)):
        users = sorted(meta.key for meta in metas if namespace in {None, meta.namespace})
        if users:
            text = f"{kind} {listed(users, _SHOWN)} names Service {name}, which does not exist"
            do = f"create it with a port named {PORT}, before the Workloads; or remove kubernetes.service.name"
            line = Line("service", text, False, do, Rank.CAUSE, Reason.SERVICE_NOT_FOUND, Health.MISSING)
            return SUBJECT.absent(name, namespace, Absence(), line, *beside.lines())
    return None


def routed_service_health(cluster: Cluster, service: RoutedService) -> Verdict:
    """Return the health of a Service."""
    return _verdict(cluster, service, [*_chain(cluster, service)])


def is_routed(cluster: Cluster, service: RoutedService) -> bool:
    """Return whether a Service is of wasmCloud v2, as far as known."""
    meta = service.meta
    return bool(
        cluster.deployments_of(service)
        or cluster.workloads_behind(service)
        or cluster.slices_of(meta.namespace, meta.name)
    )


def _verdict(cluster: Cluster, service: RoutedService, chain: Sequence[Line]) -> Verdict:
    if not service.meta.deleting and _scaled_to_zero(cluster, service):
        return Verdict(Health.SUSPENDED, Reason.SCALED_TO_ZERO, SUSPENDED)
    return verdict_beside(chain)


def _scaled_to_zero(cluster: Cluster, service: RoutedService) -> bool:
    users = cluster.deployments_of(service)
    return bool(users) and not any(item.replicas for item in users) and not cluster.workloads_behind(service)


def _chain(cluster: Cluster, service: RoutedService) -> Iterator[Line]:
    meta = service.meta
    cluster = cluster.of_namespace(meta.namespace)
    users = cluster.deployments_of(service)
    names = listed([item.meta.name for item in users], _SHOWN) or "none"
    yield Line("service", f"{meta.key}, WorkloadDeployments: {names}", ok=True)
    if meta.deleting:
        yield Line("deletion", "it is being deleted", ok=False, reason=Reason.DELETING)
        return
    yield from operator_lines(cluster)
    workloads = cluster.workloads_behind(service)
    kept = [item for item in workloads if not item.meta.deleting]
    full = [item for item in kept if not item.spec.empty]
    ready = [item for item in full or kept if item.ready]
    if ready:
        hosts = [placed(cluster, item) for item in ready]
        if all(line.trouble for line in hosts):
            yield hosts[0]
        if not full:
            text = f"Workload {ready[0].meta.key} is Ready, and has"
            yield without_components(text, template_of(cluster, ready[0]))
        routed = [item for item in kept if item.ready]  # their hosts are endpoints, also without components
        yield from service_lines(cluster, Routed(meta.namespace, ready[0].spec, meta.name, routed))
    elif not _scaled_to_zero(cluster, service):
        without = _none_ready(cluster, service, workloads)
        yield without
        if without.reason != Reason.READ_INCOMPLETE:
            yield port_line(service)
            yield from filter(None, (endpoints_line(cluster, service, reached=False),))


def _none_ready(cluster: Cluster, service: RoutedService, workloads: Sequence[WorkloadView]) -> Line:
    """Return the step for a Service without a Workload that is Ready; their pages have the cause."""
    for part in (Part.WORKLOADS, Part.REPLICA_SETS, Part.DEPLOYMENTS):
        if not cluster.snapshot.knows(part):
            text = f"its endpoints are not evaluated: {unknown(cluster, part)}"
            return Line("workloads", text, False, "", Rank.SYMPTOM, Reason.READ_INCOMPLETE, Health.UNKNOWN)
    users, namespace = cluster.deployments_of(service), service.meta.namespace
    kind, name = ("workloaddeployment", users[0].meta.name) if users else ("workload", "")
    name = name or next((item.meta.name for item in workloads), "")
    do = f"`trellis explain {kind}/{name} -n {namespace}` shows the cause" if name else ""
    text = f"none of its Workloads is ready ({len(workloads)})" if workloads else "it has no Workload"
    unavailable = cluster.operator.unavailable
    rank = Rank.SYMPTOM if unavailable else Rank.CAUSE
    if not cluster.snapshot.knows(Part.SLICES):
        return Line(
            "workloads", text, False, do, rank, Reason.NOT_READY, Health.UNKNOWN if unavailable else Health.DEGRADED
        )
    if not cluster.addresses_of(service):
        return Line(
            "workloads", f"{text}, so it has no endpoints", False, do, rank, Reason.NO_ENDPOINTS, Health.DEGRADED
        )
    if unavailable:
        text = f"{text} by their conditions, which nothing updates; its endpoints receive requests"
        return Line("workloads", text, False, do, rank, Reason.NOT_READY, Health.UNKNOWN)
    text = f"{text}; the endpoints of former ones receive its requests"
    return Line("workloads", text, False, do, rank, Reason.NOT_READY, Health.DEGRADED)
