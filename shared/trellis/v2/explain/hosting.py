"""State of a host as the cause of another problem: heartbeat, conditions, pulls in progress.

Pure. In: a Host in its cluster. Out: the step of a page with the cause. Called by the pages of hosts and workloads.
Invariant: a Host is Ready for up to a minute after its process ended, so its heartbeat is checked first.
"""

from __future__ import annotations

from typing import Final

from trellis.read_model.explain.page import Line, Rank
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.operator import cut_off, heartbeats_stopped
from trellis.v2.explain.pods import pod_beside
from trellis.v2.explain.text import host_named, hosts_there, in_seconds, number_of, quoted, unknown
from trellis.v2.fields import listed
from trellis.v2.hosts import HostView
from trellis.v2.objects import Condition
from trellis.v2.operator import DEADLINE, State
from trellis.v2.reasons import Reason
from trellis.v2.silence import Silence
from trellis.v2.snapshot import Part
from trellis.v2.start_failures import registry_asked
from trellis.v2.workloads import WorkloadView

_CHECK_OPERATOR: Final = (
    "check that the runtime-operator runs and watches this namespace; it starts one Workload at a time"
)


def host_trouble(cluster: Cluster, host: HostView) -> Line | None:
    """Return why a host does not work, None if it does as far as known."""
    cluster = cluster.within(host.meta.namespace)
    if (missing := heartbeat_missing(cluster, host)) is not None:
        return missing
    if (late := _answers_late(cluster, host)) is not None:
        return late
    for reported in (host.reporting, host.ready):
        if reported.status not in {"", "True"}:
            text = f"{_named(host)} is {reported.type}={reported.status}{quoted(reported.message)}"
            do = f"`trellis explain whost/{host.meta.name} -n {host.meta.namespace}`"
            rank = Rank.SYMPTOM if cluster.operator.unavailable else Rank.CAUSE  # it can be outdated
            return Line("host", text, False, do, rank, Reason.HOST_NOT_READY)
    return None


def heartbeat_missing(cluster: Cluster, host: HostView) -> Line | None:
    """Return the step for a host whose heartbeat is missing, None if it is not, or if that is not known."""
    cluster = cluster.within(host.meta.namespace)
    if not cluster.heartbeat_missing(host):
        return None
    silence = cluster.silence(host)
    state = cluster.operator.state
    if silence is Silence.COMMON or not cluster.missed(host):
        if state is State.CUT_OFF:
            return cut_off(cluster, Rank.CAUSE)
        if state is State.UNAVAILABLE:
            return None  # nothing records heartbeats
    if (busy := _busy(cluster, host)) is not None:
        return busy
    if silence is Silence.COMMON:
        return heartbeats_stopped(cluster, Rank.CAUSE)
    if silence is Silence.NONE:
        return None
    text = without_heartbeat(cluster, host)
    if cluster.disconnected(host):
        text += ", and is not connected to NATS"
    where = f" at {host.address}" if host.address else ""
    state_of_pod, check = pod_beside(cluster, host)
    if state_of_pod:
        text += f"; {state_of_pod}"
    check = check or f"check its process{where} and its connection to NATS"
    do = f"{check}; {deletion_of(cluster, host)}"
    return Line("host", text, False, do, Rank.CAUSE, Reason.HEARTBEAT_MISSING)


def without_heartbeat(cluster: Cluster, host: HostView) -> str:
    """Return since when a host has sent no heartbeat."""
    age = cluster.age(cluster.last_heartbeat(host))
    since = f"for {in_seconds(age)}" if age is not None else "since it was registered"
    return f"{_named(host)} has sent no heartbeat {since}"


def deletion_of(cluster: Cluster, host: HostView) -> str:
    """Return when the operator deletes a Host without heartbeats, or that it was to be deleted already."""
    timings = cluster.snapshot.timings
    most = in_seconds(timings.host_look + timings.host_lifetime)
    if cluster.older(cluster.last_heartbeat(host), timings.expired):
        return f"the operator was to delete the Host {most} after its last heartbeat: read its log"
    return f"the operator deletes the Host within {most}"


def outdated(cluster: Cluster, workload: WorkloadView) -> str:
    """Return why the conditions of a placed Workload can be outdated, "" if nothing shows that they are."""
    if cluster.operator.unavailable:
        return "the runtime-operator records no heartbeats, so this can be outdated"
    host = cluster.host(workload.host_id)
    return without_heartbeat(cluster, host) if host is not None and cluster.silence(host) is Silence.OWN else ""


def placed(cluster: Cluster, workload: WorkloadView) -> Line:
    """Return the step for the host of a Workload whose conditions are all True."""
    host, since = cluster.host(workload.host_id), cluster.by_server(workload.condition("Placement").since)
    age = cluster.age(since)
    text = f"on host {host_named(cluster, workload.host_id)}{f' for {in_seconds(age)}' if age is not None else ''}"
    if host is not None:
        trouble = host_trouble(cluster, host)
        if trouble is not None and trouble.state is Health.PROGRESSING:
            return Line("host", f"{text}; {trouble.text}")  # it serves while it pulls an image for another one
        return trouble or Line("host", text, ok=True)
    # A Host that was registered just now can be missing in a list that is older than the Workload.
    if not (cluster.snapshot.knows_all(Part.HOSTS) and cluster.older(since, cluster.snapshot.timings.settle)):
        return Line("host", text)
    text = (
        f"host {workload.host_id or 'without an ID'} of Workload {workload.meta.key} does not exist, so nothing shows "
        f"that it runs; hosts: {hosts_there(cluster)}"
    )
    do = "check that the runtime-operator runs: it deletes the Workloads of a deleted Host, and places their successors"
    rank = Rank.SYMPTOM if cluster.operator.unavailable else Rank.CAUSE
    return Line("host", text, False, do, rank, Reason.HOST_NOT_FOUND, Health.UNKNOWN)


def unanswered(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for a host that does not answer the operator; ``reported``: the condition that is not True."""
    host_id, message = workload.host_id or workload.spec.host_id, reported.message
    host = cluster.host(host_id)
    if host is not None:
        found = host_trouble(cluster, host) or _without_requests(cluster, host, reported)
        age = cluster.age(cluster.last_heartbeat(host))
        ago = f"; its last heartbeat was {in_seconds(age)} ago" if age is not None else ""
        notices = in_seconds(cluster.snapshot.timings.host_look)
        then = "places the Workload on another host"
        if workload.spec.host_id:
            then = "does not place it on another host while spec.hostId names this one: an ID ends with its process"
        do = f"check its process; the operator notices within {notices} and {then}"
        text = f"{_named(host)} does not answer{quoted(message)}{ago}"
        return found or Line("host", text, False, do, Rank.CAUSE, Reason.HEARTBEAT_MISSING)
    if not cluster.snapshot.knows(Part.HOSTS):
        reason = unknown(cluster, Part.HOSTS)
        text = f"host {host_id} does not answer{quoted(message)}; whether it exists is unknown{quoted(reason)}"
        return Line("host", text, False, "", Rank.CAUSE, Reason.HOSTS_UNKNOWN)
    text = f"host {host_id} does not exist; hosts: {hosts_there(cluster)}"
    do = "the Workload is replaced, on another host, within a minute"
    if workload.spec.host_id:
        do = "remove spec.hostId, or set it to the ID of one of the hosts: an ID changes with each start of a host"
    return Line("host", text, False, do, Rank.CAUSE, Reason.HOST_NOT_FOUND)


def _without_requests(cluster: Cluster, host: HostView, reported: Condition) -> Line | None:
    """Return the step for a host that NATS delivered no request to, and whose heartbeats arrived since; None otherwise.

    The operator repeats the request at its next look. After an outage, hosts connect later than the operator.
    """
    timings, failed = cluster.snapshot.timings, cluster.by_server(reported.since)
    last = cluster.last_heartbeat(host)
    if last is None or failed is None or last <= failed:
        return None
    text = f"{_named(host)} did not answer{quoted(reported.message)}, and has sent a heartbeat since"
    if not cluster.older(failed, timings.workload_look + timings.slack):
        look = in_seconds(timings.workload_look)
        return Line("host", f"{text}; the operator retries within {look}", ok=False, reason=Reason.WAITING)
    do = f"check that NATS permits it to subscribe to runtime.host.{host.id}.>, in the account of the operator"
    return Line("host", text, False, do, Rank.CAUSE, Reason.HOST_UNREACHABLE)


def timed_out(cluster: Cluster, workload: WorkloadView, message: str) -> Line:
    """Return the step for a request of the operator that NATS did not answer in time."""
    host = cluster.host(workload.host_id)
    state = cluster.operator.state
    if state is State.CUT_OFF:
        return cut_off(cluster, Rank.CAUSE)
    if host is not None and (found := host_trouble(cluster, host)) is not None:
        return found
    name = host_named(cluster, workload.host_id)
    pull = in_seconds(cluster.snapshot.timings.pull)
    text = f"host {name} did not answer the operator in time{quoted(message)}"
    do = f"a host answers nothing while it pulls an image, up to {pull} each; check its log and its registries"
    return Line("host", text, False, do, Rank.CAUSE, Reason.HOST_BUSY)


def starting_on(cluster: Cluster, workload: WorkloadView) -> Line | None:
    """Return the step for a Workload that its host has been starting for longer than usual, None for any other one."""
    if not cluster.is_starting(workload):
        return None
    images = sorted({part.image for part in workload.spec.parts if part.image})
    registries = sorted({registry_asked(image) for image in images})
    age = cluster.age(cluster.by_server(workload.chosen.since)) or 0.0
    text = (
        f"host {host_named(cluster, workload.host_id)} has been pulling from registry {listed(registries, 3)}, or "
        f"compiling, for {in_seconds(age)} (images of Workload {workload.meta.key}: {listed(images, 3)})"
    )
    pull = in_seconds(cluster.snapshot.timings.pull)
    do = (
        f"check the registry: a pull ends after {pull}; if it answers, the host has too little CPU for this component; "
        "until then the operator starts no other Workload"
    )
    return Line("image", text, False, do, Rank.CAUSE, Reason.REGISTRY_TIMEOUT, Health.PROGRESSING)


def _answers_late(cluster: Cluster, host: HostView) -> Line | None:
    """Return the step for a host that did not answer the operator in time, and pulls or has sent a heartbeat since.

    The operator repeats the request at its next look; until then it places no Workloads on this host.
    """
    timings, since = cluster.snapshot.timings, cluster.by_server(host.reporting.since)
    if host.reporting.true or DEADLINE not in host.reporting.message:
        return None
    if (busy := _busy(cluster, host)) is not None:
        return busy
    last, limit = cluster.last_heartbeat(host), 2 * timings.host_look + timings.slack
    if last is None or since is None or last <= since or cluster.older(since, limit):
        return None
    look = in_seconds(timings.host_look)
    text = (
        f"{_named(host)} did not answer the operator in time{quoted(host.reporting.message)}, and has sent a heartbeat "
        f"since; the operator retries within {look}"
    )
    do = f"a host answers nothing while it pulls an image, up to {in_seconds(timings.pull)} each; check its registries"
    return Line("host", text, False, do, Rank.CAUSE, Reason.HOST_BUSY, Health.PROGRESSING)


def _busy(cluster: Cluster, host: HostView) -> Line | None:
    """Return the start that a host is busy with: meanwhile it sends no heartbeat."""
    there = (item for item in cluster.starting if item.host_id == host.id)
    return next((line for item in there if (line := starting_on(cluster, item)) is not None), None)


def waiting_operator(cluster: Cluster, workload: WorkloadView) -> Line:
    """Return the step for a Workload that the operator has not reconciled."""
    timings = cluster.snapshot.timings
    busy = (starting_on(cluster, item) for item in cluster.starting if item.meta.key != workload.meta.key)
    for line in busy:
        if line is not None:
            text = f"the operator waits, it starts one Workload at a time; {line.text}"
            return Line("observed", text, False, line.do, Rank.CAUSE, line.reason, Health.PROGRESSING)
    age = cluster.age(workload.meta.created)
    if age is None or age <= timings.settle:
        return Line("observed", "the operator has not reconciled it yet", ok=False, reason=Reason.WAITING)
    text = f"the operator has not reconciled it for {in_seconds(age)}"
    return _not_observed(cluster, "observed", text)


def waiting(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for a condition that is neither True nor False: progress, until it has lasted for too long."""
    timings, about = cluster.snapshot.timings, reported.type.lower()
    named = f"{reported.type} of Workload {workload.meta.key}"
    message = quoted(reported.message)
    if not reported.status:
        age = cluster.age(cluster.changed(workload))
        if age is None or age <= timings.start + timings.slack or cluster.starting:
            return Line(about, f"waiting for {named}", ok=False, reason=Reason.WAITING)
        return _not_observed(cluster, about, f"the operator has not evaluated {named} for {in_seconds(age)}")
    age = cluster.age(cluster.by_server(reported.since))
    if age is None or age <= timings.start + timings.workload_look + timings.slack:
        return Line(about, f"{named} is {reported.status}{message}", ok=False, reason=Reason.WAITING)
    text = f"{named} has been {reported.status} for {in_seconds(age)}{message}"
    rank = Rank.SYMPTOM if cluster.operator.unavailable else Rank.CAUSE
    return Line(about, text, False, _CHECK_OPERATOR, rank, Reason.NOT_READY, Health.UNKNOWN)


def deletion(cluster: Cluster) -> Line:
    """Return the step for a Workload that is being deleted."""
    text, do = _held_up(cluster)
    return Line("deletion", f"it is being deleted{text}", False, do, reason=Reason.DELETING)


def _not_observed(cluster: Cluster, about: str, text: str) -> Line:
    rank = Rank.SYMPTOM if cluster.operator.unavailable else Rank.CAUSE
    held_up, do = _held_up(cluster)
    return Line(about, text + held_up, False, do or _CHECK_OPERATOR, rank, Reason.NOT_OBSERVED, Health.UNKNOWN)


def _held_up(cluster: Cluster) -> tuple[str, str]:
    """Return which host the operator waits for, as the end of a text, and the resolution; "" if it waits for none."""
    stopping = cluster.stopping
    if not stopping:
        return "", ""
    name, each = host_named(cluster, stopping[0].host_id), in_seconds(cluster.snapshot.timings.stop)
    left = number_of(len(stopping), "Workload")
    text = f"; the operator waits for host {name}, which does not answer, {each} for each of its {left} to stop"
    return text, "end the process of this host, whose log has its ID: the operator waits for none that NATS has lost"


def _named(host: HostView) -> str:
    return f"host {host.meta.name or host.id}"
