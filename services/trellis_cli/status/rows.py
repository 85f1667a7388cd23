"""The rows of ``trellis status``: counts, problems, and the commands with details.

Pure. In: read objects. Out: parts. Called by ``status``. Invariant: a row has the same cause as ``trellis explain`` for
the same object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from trellis import names
from trellis.bus.streams.stream_stats import StreamCount
from trellis.events.subjects import STREAM_DEAD
from trellis.provisioning.reasons import Reason
from trellis.read_model.explain.hosts import MANAGER as HOST_MANAGER
from trellis.read_model.explain.hosts import group_cause
from trellis.read_model.explain.job import failure_line
from trellis.read_model.explain.page import Rank, condition
from trellis.read_model.explain.service import REFLECTOR
from trellis.read_model.explain.shim import shim_cause
from trellis.read_model.reading.leaders import SKEW_SECONDS, Leadership, NodesClaim, of_the_future, trouble_of
from trellis.read_model.tables.nodes import UNFINISHED, NodeRow, NodeState, summary, tally
from trellis_cli.circuit_breaker.model import BreakerRow, Position
from trellis_cli.common.rollout_state import Rollout
from trellis_cli.explain.grant import BACKEND, grant_cause
from trellis_cli.status.reflected_services import ReflectedServices
from trellis_cli.status.row import Led, Part, Unhealthy, command, led_part, named

Manifest = Mapping[str, Any]

HOSTS: Final = "hosts"
INSTALLATION: Final = "installation"
SECRETS: Final = "secrets"
_OF_NODES: Final = frozenset({Reason.JOB_REFUSED, Reason.INSTALLER_REFUSED, Reason.UPDATE_REFUSED})
"""Reasons of Degraded of a Shim that repeat the reports of its nodes."""
_MIB: Final = 1024 * 1024


def service_part(name: str, lead: Leadership | None, namespace: str) -> Part:
    """Return the row of a service of the installation in ``namespace``; ``lead`` None: it never had a leader."""
    if lead is None or not lead.holder:
        never = f"never ran in namespace {namespace} (TRELLIS_NAMESPACE)" if lead is None else "was stopped"
        problem = f"no replica leads, it {never}: start it with `trellis run {name}`"
        return replace(unknown_service(name, problem), text="no leader")
    age = round(lead.age, 1) if lead.age is not None else None
    data = {"name": name, "holder": lead.holder, "renewed_seconds_ago": age}
    text = f"{'held' if lead.foreign else 'led'} by {lead.holder}"
    if age is not None and age >= -SKEW_SECONDS and not lead.foreign:
        text += f", renewed {max(age, 0)} s ago"
    return Part(name, text, trouble_of(lead), data)


def claim_part(claim: NodesClaim | None, namespace: str) -> Part:
    """Return the row of the installation that provisions the nodes; another one in the cluster is a problem."""
    name = INSTALLATION
    if claim is None or not claim.holder:
        return Part(name, "no installation provisions the nodes", data={"name": name, "holder": None, "waiting": []})
    data = {"name": name, "holder": claim.holder, "waiting": [*claim.waiting]}
    text = f"{claim.holder} provisions the nodes"
    if claim.ahead > SKEW_SECONDS:
        what, then = (
            f"its claim, Lease {names.LEASE_NODES},",
            "another installation provisions the nodes after a minute",
        )
        return Part(name, text, of_the_future(what, claim.ahead, then), data)
    others = [item for item in claim.waiting if item != claim.holder]
    if claim.holder != namespace:
        problem = f"installation {claim.holder} provisions the nodes, so {namespace} does not: uninstall one of them"
        return Part(name, text, problem, data)
    if others:
        return Part(name, text, f"installation {', '.join(others)} waits for the nodes: uninstall one of them", data)
    return Part(name, text, data=data)


def unknown_service(name: str, problem: str) -> Part:
    """Return the row of a service whose leader is unknown."""
    return Part(name, "unknown", problem, {"name": name, "holder": None, "renewed_seconds_ago": None})


def rollout_part(rollout: Rollout, pending: Mapping[str, str] | None = None) -> Part:
    """Return the row of the rollout: halted, failed and blocked nodes, blocked Shims, and invalid annotations.

    ``pending``: by node, the cause that blocks its installer.
    """
    counts, halted = tally(rollout.rows), rollout.ledger.halted
    failed = _failed(rollout.rows)
    stuck = _stuck(rollout.rows, pending or {})
    problems = []
    if halted:
        pods = [state.halt.message for state in rollout.ledger.workloads.values() if state.halt is not None]
        why = pods[0] if pods else f"too many nodes fail{_first('node', failed)}"
        problems.append(f"rollout of {', '.join(halted)} halted, {why}")
    elif failed:
        problems.append(f"{len(failed)} failed, retried{_first('node', failed)}")
    if stuck:
        problems.append(f"{len(stuck)} blocked{_first('node', stuck)}")
    if counts[NodeState.INVALID_ANNOTATION]:
        problems.append(f"{counts[NodeState.INVALID_ANNOTATION]} with an invalid annotation: see `trellis nodes`")
    causes = {
        str(shim["metadata"]["name"]): cause
        for shim in rollout.shims
        if (cause := _shim_cause(shim, node_failures_reported=bool(stuck)))
    }
    if causes:
        problems.append(named(Unhealthy("Shims blocked", "shim", causes)))
    in_progress = len(rollout.ledger.entries)
    text = f"{in_progress} in progress{', halted' if halted else ''}; {summary(rollout.rows)}"
    data = {
        "in_progress": in_progress,
        "halted": halted,
        "counts": {state.value: count for state, count in counts.items()},
        "causes": failed | stuck,
        "shims": causes,
    }
    return Part("rollout", text, "; ".join(problems), data)


def _shim_cause(shim: Manifest, *, node_failures_reported: bool) -> str:
    """Return the problem of a Shim, "" if there is none. ``node_failures_reported``: its nodes report them."""
    cause = shim_cause(shim)
    reason = condition(shim.get("status") or {}, "Degraded").get("reason")
    return "" if cause is None or (node_failures_reported and reason in _OF_NODES) else cause.text


def _failed(rows: Sequence[NodeRow]) -> dict[str, str]:
    """Return why nodes failed."""
    there = [row for row in rows if row.state is NodeState.FAILED]
    return {row.name: failure_line(row.message, None).text for row in there}


def _stuck(rows: Sequence[NodeRow], pending: Mapping[str, str]) -> dict[str, str]:
    """Return why nodes that did not fail are blocked."""
    found = {}
    for row in rows:
        if row.state not in UNFINISHED:
            continue
        own = not row.kubelet_ready or row.reason == Reason.NOTHING_TO_INSTALL
        if reason := row.message if own else pending.get(row.name):
            found[row.name] = reason
    return found


def _first(kind: str, causes: Mapping[str, str]) -> str:
    """Return the end of a sentence: the cause of the first object, and the command with details."""
    if not causes:
        return ": see `trellis nodes`"
    name = min(causes)
    return f": {name}: {causes[name]}: see `{command(kind, name)}`"


def breakers_part(rows: list[BreakerRow]) -> Part:
    """Return the row of the circuit breakers; paused deletions and an unreadable record are problems."""
    shown = [row for row in rows if row.position is not Position.CLOSED]
    problems = [
        f"{row.paused} deletions of {row.kind} by {row.service} paused: see `trellis circuit-breaker status`"
        for row in shown
        if row.paused or row.position is Position.UNREADABLE
    ]
    text = f"{len(shown)} of {len(rows)} open" if shown else "closed"
    return Part("circuit-breakers", text, "; ".join(problems), {"open": [row.document() for row in shown]})


def reflected_services_part(found: ReflectedServices) -> Part:
    """Return the row of Services of applications; one without endpoints is a problem, and so is a missing leader.

    An application whose manifest prevents a Service is a problem, too.
    """
    without = found.without_endpoints
    text = f"{found.services} Services, {len(without)} without endpoints" if found.services else ""
    if found.unreached:
        text = f"{text or 'no Services'}, {len(found.unreached)} applications without Service"
    led = Led(REFLECTOR, found.leader, "endpoints are not updated")
    data = {"services": found.services, "without_endpoints": without, "unreached": sorted(found.unreached)}
    causes = dict.fromkeys(without, "") | dict(found.unreached)
    return led_part("reflected-services", text, led, Unhealthy("no endpoint", "service", causes), data)


def hosts_part(groups: Sequence[Manifest], leader: str | None) -> Part:
    """Return the row of host groups; an unhealthy group is a problem."""
    causes = {}
    for group in groups:
        cause = group_cause(group)
        if cause is not None and cause.rank is Rank.CAUSE:
            causes[f"{group['metadata']['namespace']}/{group['metadata']['name']}"] = cause.text
    statuses = [group.get("status") or {} for group in groups]
    ready, wanted = (sum(status.get(name) or 0 for status in statuses) for name in ("readyReplicas", "desiredReplicas"))
    text = f"{len(groups)} host groups, {ready} of {wanted} hosts ready" if groups else ""
    led = Led(HOST_MANAGER, leader, "host groups are not reconciled")
    events: dict[str, Any] = {"groups": len(groups), "hosts_ready": ready, "hosts": wanted, "unhealthy": sorted(causes)}
    return led_part(HOSTS, text, led, Unhealthy("unhealthy", "hostgroup", causes), events)


def secrets_part(grants: Sequence[Manifest], groups: Sequence[Manifest] | None, pods: Sequence[Manifest]) -> Part:
    """Return the row of Secrets for components: grants without effect, and pods of secrets_backend that are not ready.

    The service has no leader and writes nothing: only its own pods show that it runs.
    """
    causes = {}
    for grant in grants:
        cause = grant_cause(grant, groups)
        if cause is not None:
            causes[f"{grant['metadata']['namespace']}/{grant['metadata']['name']}"] = cause.text
    ready = sum(condition(pod.get("status") or {}, "Ready").get("status") == "True" for pod in pods)
    problems = []
    if pods and not ready:
        place = pods[0]["metadata"]["namespace"]
        see = f"kubectl get pods -n {place} -l app.kubernetes.io/component={BACKEND}"
        problems.append(f"no pod of {BACKEND} is ready, components get no Secrets: see `{see}`")
    if causes:
        problems.append(named(Unhealthy("not ready", "secretgrant", causes)))
    runs = f"{ready} of {len(pods)} pods of {BACKEND} ready" if pods else f"{BACKEND} has no separate pods"
    data = {"grants": len(grants), "without_effect": sorted(causes), "causes": causes}
    text = f"{len(grants)} grants; {runs}"
    return Part(SECRETS, text, "; ".join(problems), data | {"pods": len(pods), "pods_ready": ready})


def bus_part(streams: list[StreamCount]) -> Part:
    """Return the row of the bus; a missing stream and dead letters are problems."""
    missing = [stream.name for stream in streams if stream.messages is None]
    dead_letters = next((stream for stream in streams if stream.name == STREAM_DEAD), None)
    dead = (dead_letters.messages if dead_letters else 0) or 0
    problems = []
    if missing:
        problems.append(f"missing streams: {', '.join(missing)}; a running service creates them within seconds")
    if dead:
        see = (
            f", of the oldest `trellis explain deadletter/{dead_letters.first}`"
            if dead_letters and dead_letters.first
            else ""
        )
        letters = "1 dead letter" if dead == 1 else f"{dead} dead letters"
        problems.append(f"{letters} in {STREAM_DEAD}: see `trellis dead-letters list`{see}")
    text = ", ".join(
        f"{stream.name} {stream.messages} messages {(stream.size or 0) / _MIB:.1f} MiB"
        for stream in streams
        if stream.messages is not None
    )
    data = {
        "streams": [{"name": stream.name, "messages": stream.messages, "bytes": stream.size} for stream in streams],
        "dead_letters": dead,
    }
    return Part("bus", text or "connected", "; ".join(problems), data)
