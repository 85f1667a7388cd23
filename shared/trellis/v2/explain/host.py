"""State of a Host of wasmCloud v2, and its cause: heartbeat, conditions, address, workloads.

Pure. In: a Host in its cluster, its heartbeat if one was received. Out: health, cause, page. Called by ``explain`` and
``status``. Invariant: numbers come from the heartbeat; the status of a Host has "unknown" and 0 most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Rank
from trellis.read_model.explain.subject import Beside, Subject, cause_of
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import heartbeat_missing, host_trouble
from trellis.v2.explain.operator import operator_lines, verdict_with_operator
from trellis.v2.explain.pods import pod_line
from trellis.v2.explain.routing import refused_address
from trellis.v2.explain.text import in_seconds, labels_shown, number_of, unknown
from trellis.v2.explain.workload import WANTED, is_cause, manifest_of, workload_cause
from trellis.v2.hosts import HostView
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot

SUBJECT: Final = Subject("Host", "whost", "kubectl get hosts.runtime.wasmcloud.dev -A", WANTED)
_SHOWN: Final = 5
_GIB: Final = 2**30


def explain_host(snapshot: Snapshot, host: HostView, beside: Beside) -> Explanation:
    """Return the page of a Host."""
    cluster = Cluster(snapshot).within(host.meta.namespace)
    chain = [*_chain(cluster, host)]
    lines = [*chain, *_failed(cluster, host), _details(cluster, host)]
    return SUBJECT.page(manifest_of(host.meta), lines, beside, verdict_with_operator(chain))


def host_health(cluster: Cluster, host: HostView) -> Verdict:
    """Return the health of a Host."""
    return verdict_with_operator([*_chain(cluster, host)])


def host_cause(cluster: Cluster, host: HostView) -> Line | None:
    """Return the cause of a Host that is not healthy, None if it is: as its page has it."""
    return cause_of(_chain(cluster, host))


def _chain(cluster: Cluster, host: HostView) -> Iterator[Line]:
    cluster = cluster.within(host.meta.namespace)
    meta = host.meta
    where = f"{host.address or 'no address'}:{host.port or 'no port'}"
    text = f"{meta.key}, ID {host.id or 'unknown'}, {where}, environment {host.environment or 'none'}"
    yield Line("host", f"{text}, labels {labels_shown(host.labels) or 'none'}", ok=True)
    if meta.deleting:
        yield Line("deletion", "it is being deleted, with its Workloads", ok=False, reason=Reason.DELETING)
        return
    yield from operator_lines(cluster)
    yield pod_line(cluster, host)
    yield _heartbeat(cluster, host)
    yield from _conditions(cluster, host)
    if reason := cluster.unroutable(host):
        yield refused_address(host, reason, "Services of its workloads get no endpoints")
    yield from _running(cluster, host)


def _heartbeat(cluster: Cluster, host: HostView) -> Line:
    missing = heartbeat_missing(cluster, host)
    if missing is not None:
        return missing
    age = cluster.age(cluster.last_heartbeat(host))
    if age is None:
        return Line("heartbeat", "no heartbeat is recorded yet", ok=False, reason=Reason.WAITING)
    last = cluster.last_message(host.id)
    if last is not None and last.heartbeat is None:
        return Line("heartbeat", f"cannot be parsed: {last.reason}")
    # An operator that does not work records none.
    return Line("heartbeat", f"{in_seconds(age)} ago", ok=None if cluster.heartbeat_missing(host) else True)


def _conditions(cluster: Cluster, host: HostView) -> Iterator[Line]:
    for reported in (host.reporting, host.ready):
        if not reported.status:
            yield _not_evaluated(cluster, host, reported.type)
        else:
            yield Line(reported.type.lower(), reported.message or reported.status, ok=True if reported.true else None)
    trouble = host_trouble(cluster, host)
    if trouble is not None and trouble.reason == Reason.HOST_NOT_READY:
        yield Line("host", trouble.text, False, "", Rank.CAUSE, Reason.HOST_NOT_READY)
    elif trouble is not None and not cluster.heartbeat_missing(host):
        yield trouble  # it pulls an image


def _not_evaluated(cluster: Cluster, host: HostView, kind: str) -> Line:
    timings, age = cluster.snapshot.timings, cluster.age(host.meta.created)
    text = f"the operator has not evaluated {kind} of Host {host.meta.name}"
    if age is None or age <= timings.host_look + timings.slack:
        return Line(kind.lower(), f"{text} yet", ok=False, reason=Reason.WAITING)
    do = "check that the runtime-operator runs, and read its log"
    rank = Rank.SYMPTOM if cluster.operator.unavailable else Rank.CAUSE
    return Line(kind.lower(), f"{text} for {in_seconds(age)}", False, do, rank, Reason.NOT_OBSERVED, Health.UNKNOWN)


def _running(cluster: Cluster, host: HostView) -> Iterator[Line]:
    if not cluster.snapshot.knows_all(Part.WORKLOADS):
        yield Line("workloads", f"unknown: {unknown(cluster, Part.WORKLOADS)}")
        return
    described = cluster.description(host.id)
    running = described.workloads if described is not None else None
    known = cluster.known_on(host.id)
    if running is not None and running > known:
        text = f"it runs {number_of(running, 'workload')}, {running - known} of them without a Workload in Kubernetes"
        do = "they serve outdated versions until the process ends: restart the host if this persists"
        yield Line("workloads", text, False, do, Rank.CAUSE, Reason.UNKNOWN_WORKLOADS, Health.DEGRADED)


def _failed(cluster: Cluster, host: HostView) -> Iterator[Line]:
    """Yield the lines about the Workloads of a host; they do not change its health, so only its page has them."""
    if host.meta.deleting or not cluster.snapshot.knows_all(Part.WORKLOADS):
        return
    there = cluster.workloads_on(host.id)
    failed = [item for item in there if is_cause(workload_cause(cluster, item))]
    yield Line("workloads", f"{number_of(len(there), 'Workload')}, with a problem: {len(failed)}")
    for item in failed[:_SHOWN]:
        see = f"`trellis explain workload/{item.meta.name} -n {item.meta.namespace}`"
        yield Line("workload", f"{item.meta.key} is not healthy", do=see)


def _details(cluster: Cluster, host: HostView) -> Line:
    beat = cluster.description(host.id)
    version = (beat.version if beat else "") or host.version
    system = (beat.system if beat else "") or host.system
    free = (beat.memory_free if beat else None) or host.memory_free
    total = (beat.memory_total if beat else None) or host.memory_total
    memory = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB memory free" if free and total else ""
    listened = cluster.snapshot.messages is not None
    otherwise = "unknown: no heartbeat of it was received" if listened else "known only from its heartbeat (--v2-nats)"
    return Line("details", ", ".join(filter(None, (version, system, memory))) or otherwise)
