"""The runtime-operator and NATS as steps of a page.

Pure. In: the judgement of a cluster. Out: steps. Called by all pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trellis.read_model.explain.page import Line, Rank
from trellis.read_model.explain.subject import cause_of
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.explain.text import in_seconds, number_of, quoted
from trellis.v2.fields import listed
from trellis.v2.operator import Judgement, State
from trellis.v2.reasons import Reason

_SHOWN: Final = 5


def operator_lines(cluster: Cluster) -> list[Line]:
    """Return the steps of a page about the operator and the connection to NATS; none if nothing is known."""
    found, name = cluster.operator, _named(cluster)
    lines = _several(cluster)
    if found.state is State.WORKING:
        lines.append(Line("operator", f"{name} works: {_evidence(found)}", ok=True))
    elif found.state is State.UNAVAILABLE:
        text = f"{name} does not work ({_evidence(found)}), so conditions and endpoints are outdated{_caveat(cluster)}"
        do = "check that its pod runs, reaches the API server and NATS, and read its log; hosts continue to serve"
        lines.append(Line("operator", text, False, do, Rank.SERVICE, Reason.OPERATOR_UNAVAILABLE, Health.UNKNOWN))
    elif found.state is State.CUT_OFF:
        lines.append(cut_off(cluster, Rank.SERVICE))
    elif found.state is State.HEARTBEATS_MISSING:
        lines.append(heartbeats_stopped(cluster, Rank.SERVICE))
    elif found.age is not None:
        lines.append(Line("operator", f"state of {name} unknown: {_evidence(found)}"))
    return lines + _clock(cluster) + _nats(cluster)


def _caveat(cluster: Cluster) -> str:
    """Return the other possible cause of missing heartbeats, "" if an object excludes it."""
    if not cluster.clock_doubtful:
        return ""
    return "; or its clock is behind that of the API server, which no object shows or excludes"


def _named(cluster: Cluster) -> str:
    return f"the runtime-operator of namespace {cluster.place}" if cluster.place else "the runtime-operator"


def _several(cluster: Cluster) -> list[Line]:
    """Return the step for an object whose operator is one of several, and not known."""
    if not cluster.several:
        return []
    states = listed([f"{part.place} {part.operator.state}" for part in cluster.parts], _SHOWN)
    return [Line("operator", f"its runtime-operator is not known; there are, by namespace of their Hosts: {states}")]


def _clock(cluster: Cluster) -> list[Line]:
    if not (lead := cluster.clock_lead):
        return []
    direction = "ahead of" if lead > 0 else "behind"
    text = f"the clock of {_named(cluster)} is {in_seconds(abs(lead))} {direction} that of the API server"
    return [Line("clock", f"{text}: the times that it wrote are corrected for this page")]


def source_line(about: str, text: str, do: str) -> Line:
    """Return the step for a source that could not be read: a warning if its user can resolve that, neutral if not."""
    if not do:
        return Line(about, text)
    return Line(about, text, False, do, Rank.SERVICE, Reason.SOURCE_NOT_READ, Health.HEALTHY)


def verdict_with_operator(chain: Sequence[Line]) -> Verdict:
    """Return the health of an object that is unknown without the operator; a warning does not change it."""
    cause = cause_of(chain)
    if cause is None or cause.state is Health.HEALTHY:
        return Verdict(Health.HEALTHY, Reason.HEALTHY, cause.shown if cause is not None else "")
    return cause.verdict


def cut_off(cluster: Cluster, rank: Rank) -> Line:
    """Return the step for an operator without a connection to NATS."""
    text = f"{_named(cluster)} does not reach NATS (requests to hosts time out, and {_evidence(cluster.operator)})"
    do = (
        "restore NATS or its network and delete nothing: hosts continue to serve, but after "
        f"{in_seconds(cluster.snapshot.timings.host_lifetime)} the operator deletes Hosts, Workloads and endpoints"
    )
    return Line(_about(rank), text, False, do, rank, Reason.NATS_UNREACHABLE, Health.UNKNOWN)


def heartbeats_stopped(cluster: Cluster, rank: Rank) -> Line:
    """Return the step for the heartbeats of all hosts that ended at about the same moment."""
    hosts, age = cluster.hosts, cluster.age(cluster.newest_heartbeat)
    ago = f", {in_seconds(age)} ago" if age is not None else ""
    if len(hosts) == 1:
        text = f"the heartbeats of the only host, {hosts[0].meta.name}, ended{ago}"
        whose = "NATS, the runtime-operator or the host is unavailable"
    else:
        text = f"the heartbeats of all {len(hosts)} hosts ended at about the same moment{ago}"
        whose = "NATS or the runtime-operator is unavailable"
    lifetime = in_seconds(cluster.snapshot.timings.host_lifetime)
    do = (
        "check NATS and the pod of the runtime-operator and delete nothing: hosts continue to serve, but once it works "
        f"again, it deletes each Host without a heartbeat for {lifetime}"
    )
    return Line(
        _about(rank),
        f"{text}, so {whose}{_caveat(cluster)}",
        False,
        do,
        rank,
        Reason.HEARTBEATS_STOPPED,
        Health.UNKNOWN,
    )


def _about(rank: Rank) -> str:
    """Return the subject of a step about an outage: of the operator, or of a host because of it."""
    return "operator" if rank is Rank.SERVICE else "host"


def _nats(cluster: Cluster) -> list[Line]:
    messages = cluster.snapshot.messages
    if messages is None:
        return []
    lines = [Line("replies", f"not received: {messages.replies_error}")] if messages.replies_error else []
    if messages.error:
        return [source_line("nats", f"NATS of the hosts not read{quoted(messages.error)}", messages.resolution), *lines]
    more = f", {messages.dropped} messages beyond the bounds dropped" if messages.dropped else ""
    text = f"heartbeats of {number_of(len(messages.hosts), 'host')} in {in_seconds(messages.seconds)}{more}"
    if cluster.unregistered:
        text += f"; {cluster.unregistered} of them have no Host"
    if cluster.other_nats:
        text += (
            "; the operator recorded heartbeats meanwhile, so this is another NATS or account than that of the operator"
        )
    return [Line("nats", text), *lines]


def _evidence(found: Judgement) -> str:
    age = f"{in_seconds(found.age)} ago" if found.age is not None else ""
    hosts = number_of(found.hosts, "host")
    match found.state:
        case State.WORKING:
            return f"it recorded a heartbeat {age}" if age else f"it records the heartbeats of {hosts}"
        case _ if found.hosts:
            return f"heartbeats of {hosts} arrive on NATS and are not recorded in their Hosts"
        case State.UNAVAILABLE:
            return f"the last heartbeat of any host was recorded {age}, and no Host was deleted since"
        case _:
            return f"the last heartbeat of any host was recorded {age}"
