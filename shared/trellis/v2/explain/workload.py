"""State of a Workload, and its cause: configuration, host, start, routing.

Pure. In: a Workload in its cluster. Out: health, cause, page. Called by ``explain``, ``status`` and the page of its
WorkloadDeployment. Invariant: the first condition of Config, HostSelection, Placement and Sync that is not True has the
cause; Ready can be outdated by 20 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Rank
from trellis.read_model.explain.subject import Beside, Subject, cause_of
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import deletion, placed, starting_on, waiting, waiting_operator
from trellis.v2.explain.operator import operator_lines
from trellis.v2.explain.placement import configuration, host_selection, placement
from trellis.v2.explain.routing import Routed, routing_lines
from trellis.v2.explain.starting import reported_failure, sync
from trellis.v2.explain.text import in_seconds, number_of
from trellis.v2.objects import Meta
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot
from trellis.v2.workloads import STEPS, TemplateView, WorkloadView

WANTED: Final = "healthy"
"""Predicate of an object of wasmCloud v2: it can be Ready and not healthy."""
SUBJECT: Final = Subject("Workload", "workload", "kubectl get workloads -A", WANTED)


def explain_workload(snapshot: Snapshot, workload: WorkloadView, beside: Beside) -> Explanation:
    """Return the page of a Workload."""
    cluster = Cluster(snapshot)
    chain = [*_chain(cluster, workload)]
    return SUBJECT.page(manifest_of(workload.meta), chain, beside, verdict_beside(chain))


def workload_health(cluster: Cluster, workload: WorkloadView) -> Verdict:
    """Return the health of a Workload."""
    return verdict_beside([*_chain(cluster, workload)])


def verdict_beside(chain: Sequence[Line]) -> Verdict:
    """Return the health of an object by its chain: a warning, and an unavailable operator, do not change it."""
    own = cause_of(line for line in chain if line.rank is not Rank.SERVICE)
    return own.verdict if own is not None else healthy(chain)


def healthy(chain: Sequence[Line]) -> Verdict:
    """Return the health of an object without a problem of its own, with the first warning as its message."""
    warning = cause_of(chain)
    return Verdict(Health.HEALTHY, Reason.HEALTHY, warning.shown if warning is not None else "")


def manifest_of(meta: Meta) -> dict[str, dict[str, str]]:
    """Return the part of a manifest that a page needs."""
    return {"metadata": {"namespace": meta.namespace, "name": meta.name or "without a name", "uid": meta.uid}}


def _chain(cluster: Cluster, workload: WorkloadView) -> Iterator[Line]:
    cluster = cluster.of_workload(workload)
    meta = workload.meta
    owner = f" of WorkloadReplicaSet {meta.owner_name}" if meta.owner_name else ""
    yield Line("workload", f"{meta.key}{owner}", ok=True)
    yield from omitted_components(workload.spec)
    yield from operator_lines(cluster)
    yield from step_lines(cluster, workload)
    yield from _changed(workload)
    if workload.ready and not meta.deleting:
        routed = Routed(meta.namespace, workload.spec, workload.spec.service, [workload])
        yield from routing_lines(cluster, routed)


def omitted_components(template: TemplateView) -> Iterator[Line]:
    """Yield the step that names components beyond the bound of a view: nothing is concluded about them."""
    if template.omitted:
        count = len(template.components)
        text = f"{number_of(count, 'component')} evaluated, and {template.omitted} further ones not: they are too many"
        yield Line("components", text)


def step_lines(cluster: Cluster, workload: WorkloadView) -> Iterator[Line]:
    """Yield the steps of the start of a Workload until the first that is not done, and the state of its host."""
    cluster = cluster.of_workload(workload)
    if workload.meta.deleting:
        yield deletion(cluster)
        return
    unmet = workload.unmet
    for step in STEPS:
        if unmet is not None and unmet.type == step:
            break
        yield Line(step.lower(), workload.condition(step).message or "True", ok=True)
    if unmet is not None:
        yield _unmet(cluster, workload)
        if workload.meta.owner_name and unmet.status == "False":
            again = in_seconds(cluster.snapshot.timings.replaced)
            yield Line("replacement", f"its WorkloadReplicaSet replaces it, with another name, after {again}")
        return
    if workload.spec.empty:
        yield without_components("it is Ready, and has", template_of(cluster, workload))
    yield placed(cluster, workload)


def _changed(workload: WorkloadView) -> Iterator[Line]:
    """Yield a warning for a spec that was changed in place and may not be the one that the host received.

    No condition has an observedGeneration. The operator writes no spec of a Workload; a deletion raises the generation.
    """
    meta = workload.meta
    if meta.generation <= 1 or meta.deleting or not workload.condition("Placement").true:
        return
    text = (
        f"its spec was changed after its creation (generation {meta.generation}), and the operator sends it to a host "
        "once, so the host can run a former one"
    )
    own = f"delete it: WorkloadReplicaSet {meta.owner_name} creates a new one"
    do = f"to be sure, {own if meta.owner_name else 're-create it'}"
    yield Line("spec", text, False, do, Rank.SERVICE, Reason.SPEC_CHANGED)


def template_of(cluster: Cluster, workload: WorkloadView) -> str:
    """Return the object with the template of a Workload, "" if it has no owner: a user edits that object."""
    name = workload.meta.owner_name
    if not name:
        return ""
    replica_set = cluster.replica_set_of(workload)
    if replica_set is None:
        return f"its WorkloadDeployment, or of WorkloadReplicaSet {name} if it has none"
    return f"WorkloadDeployment {replica_set.deployment}" if replica_set.deployment else f"WorkloadReplicaSet {name}"


def without_components(subject: str, template: str) -> Line:
    """Return the step for a workload that is Ready without anything to run; ``template``: as of ``template_of``.

    Source: the schema requires no components, and ``wash host`` reports such a workload as RUNNING.
    """
    text = f"{subject} neither components nor a service in its spec, so there is nothing to run"
    do = (
        f"add components to spec.template.spec of {template}"
        if template
        else "delete it and create it with components: the operator sends no changed spec to a host"
    )
    return Line("components", text, False, do, Rank.CAUSE, Reason.COMPONENTS_MISSING)


def _unmet(cluster: Cluster, workload: WorkloadView) -> Line:
    unmet = workload.unmet
    assert unmet is not None  # the caller has checked it
    if not workload.conditions:
        return waiting_operator(cluster, workload)
    if (starting := starting_on(cluster, workload)) is not None:
        return starting
    if unmet.status != "False":
        return reported_failure(cluster, workload) or waiting(cluster, workload, unmet)
    match unmet.type:
        case "Config":
            return configuration(cluster, workload, unmet)
        case "HostSelection":
            return host_selection(cluster, workload, unmet)
        case "Placement":
            return placement(cluster, workload, unmet)
        case _:
            return sync(cluster, workload, unmet)


def workload_cause(cluster: Cluster, workload: WorkloadView) -> Line | None:
    """Return the cause of a Workload that does not run, None if it does; without its routing.

    It is computed once: events, and the pages of its WorkloadDeployment and its host, have it, too.
    """
    cluster = cluster.of_workload(workload)
    # The value holds the Workload, so that no other object gets its identity meanwhile.
    _, line = cluster.once(("cause", id(workload)), lambda: (workload, _cause(cluster, workload)))
    return line


def _cause(cluster: Cluster, workload: WorkloadView) -> Line | None:
    return max((line for line in step_lines(cluster, workload) if line.trouble), key=_rank, default=None)


def _rank(line: Line) -> Rank:
    return line.rank


def is_cause(line: Line | None) -> bool:
    """Return whether a step is a cause, and not progress."""
    return line is not None and line.rank is Rank.CAUSE and line.state is not Health.PROGRESSING
