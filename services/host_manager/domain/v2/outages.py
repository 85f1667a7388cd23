"""Outages of heartbeats: one event when those of all hosts are lost, and one when they are back.

Pure, except for the state of ``Outages``. In: clusters, the reception from NATS. Out: events. Called by
``host_manager.v2.reconciler``. Invariants: an attempt to connect causes no event; an outage that the bus had, too, is
published after it, in order; silence that began with a lost connection belongs to its outage; silence is concluded
only if the watch of the Hosts delivered something meanwhile, because a stalled watch looks the same.

    connection:   receiving ──15 s without──► lost ──► (denied) ──15 s and a heartbeat──► restored
    namespace:    recorded ──none for 35 s, and for 20 s of the watch──► lost ──one recorded──► restored
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from host_manager.domain.v2.published import Began, Published
from host_manager.domain.v2.trust import namespaces_without_heartbeats, newest_heartbeats
from trellis.events.envelope import EventData
from trellis.events.subjects import HOST_MANAGER
from trellis.events.wasmcloud_v2 import HeartbeatsDenied, HeartbeatsLost, HeartbeatsRestored, Scope
from trellis.read_model.explain.page import Rank
from trellis.v2.cluster import Cluster
from trellis.v2.explain.operator import heartbeats_stopped, operator_lines
from trellis.v2.reception import Reception, ReceptionState
from trellis.v2.silence import continued
from trellis.v2.snapshot import Part

HeartbeatEvent = Began | HeartbeatsRestored
NATS: Final[Scope] = "Nats"
NAMESPACE: Final[Scope] = "Namespace"
CONNECTION: Final = f"{NATS}/{HOST_MANAGER}"
"""Key of the reception of host_manager."""
_CHECK: Final = (
    "check this NATS, and the settings TRELLIS_V2_NATS…; Hosts are evaluated by the heartbeats that the "
    "runtime-operator records"
)
_GRANT: Final = "permit its user to subscribe to runtime.operator.heartbeat.>; hosts are not affected"
_OTHER: Final = "check that it is the NATS and the account of the runtime-operator, and that its servers are connected"


class LossReason(StrEnum):
    """Reasons of the reception; those of a namespace are in ``trellis.v2.reasons``."""

    CONNECTION_LOST = "ConnectionLost"
    HEARTBEATS_NOT_RECEIVED = "HeartbeatsNotReceived"
    """The connection is up and delivers none, although the runtime-operator records some."""
    SUBSCRIPTION_DENIED = "SubscriptionDenied"


@dataclass(slots=True)
class _Course:
    """One outage as observed in this term. ``pending``: events of its begin that are not stored, in order.

    ``last``: the last one, stored or not; ``end``: None until it has ended.
    """

    pending: tuple[Began, ...] = ()
    last: Began | None = None
    end: HeartbeatsRestored | None = None

    def see(self, event: HeartbeatEvent) -> None:
        """Note the current state. One that returns before the bus has stored its end continues the same outage."""
        if isinstance(event, HeartbeatsRestored):
            self.end = self.end or event
            return
        self.end = None
        if type(event) is not type(self.last):
            self.last = event
            self.pending = (*(item for item in self.pending if type(item) is not type(event)), event)


class Outages:
    """The outages of a term: ``observe`` each run, publish what is ``due``, ``note`` what is stored."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._own: Mapping[str, float] = {}
        """By namespace of Hosts, Unix seconds since which their silence has been observed."""

    def observe(self, cluster: Cluster, published: Published, reception: Reception | None, watched: float) -> None:
        """Note the state of a run.

        Args:
            cluster: state of the run.
            published: as far as it is known by now.
            reception: state of the reception from NATS, None if no NATS is configured.
            watched: Unix seconds until which the watch of the Hosts has delivered all changes.
        """
        if reception is not None and (event := _of_reception(cluster, reception)) is not None:
            self._see(CONNECTION, event)
        if not cluster.snapshot.knows(Part.HOSTS):
            return
        now, timings = cluster.snapshot.now, cluster.snapshot.timings
        newest = newest_heartbeats(cluster)
        without = namespaces_without_heartbeats(cluster)
        for place in newest.keys() - without:
            if not cluster.older(newest[place], timings.heartbeat + timings.slack):
                self._see(f"{NAMESPACE}/{place}", _restored(NAMESPACE, place, cluster))
        lost_at = self._lost_at(cluster, published, reception)
        own = {place for place in without if _is_own(cluster, place, newest[place], lost_at)}
        self._own = {place: self._own.get(place, now) for place in own}
        for place, since in self._own.items():
            if watched - since >= timings.heartbeat + timings.slack:
                self._see(f"{NAMESPACE}/{place}", _silence(cluster, place, newest[place]))

    def due(self, published: Published) -> list[HeartbeatEvent]:
        """Return the events that the stream lacks, in order; ``published``: read from the stream."""
        found: list[HeartbeatEvent] = []
        for key, course in self._courses.items():
            stored = published.outages.get(key)
            if course.pending and type(course.pending[0]) is type(stored):
                course.pending = course.pending[1:]  # a former leader has published it
            pending = course.pending
            if not pending and stored is None and course.end is None and course.last is not None:
                pending = (course.last,)  # the stream was replaced
            found += pending
            stored = pending[-1] if pending else stored
            if course.end is not None and stored is not None:
                found.append(course.end.model_copy(update={"since": stored.since}))
        return found

    def note(self, event: EventData) -> None:
        """Note an event that is stored; those about objects are ignored."""
        key = "/".join(event.key())
        if isinstance(event, HeartbeatsRestored):
            self._courses.pop(key, None)
        elif isinstance(event, HeartbeatsLost | HeartbeatsDenied):
            course = self._courses[key]
            course.pending = tuple(item for item in course.pending if item != event)

    def _see(self, key: str, event: HeartbeatEvent) -> None:
        self._courses.setdefault(key, _Course()).see(event)

    def _lost_at(self, cluster: Cluster, published: Published, reception: Reception | None) -> float | None:
        """Return since when the reception has been an outage, None if it is none or if that is not known.

        After the end of an outage, hosts connect one after another: until each can have sent a heartbeat, it goes on.
        """
        if reception is None or reception.state is ReceptionState.DENIED:
            return None
        now, timings = cluster.snapshot.now, cluster.snapshot.timings
        course = self._courses.get(CONNECTION) or _Course()
        began = course.last or published.outages.get(CONNECTION)
        if isinstance(began, HeartbeatsLost) and course.end is None:
            return began.since.timestamp()
        if reception.state is ReceptionState.RECEIVING and reception.seconds >= timings.silence:
            return None
        return now if reception.state is not ReceptionState.LOST else now - reception.seconds


def _is_own(cluster: Cluster, place: str, newest: float, lost_at: float | None) -> bool:
    """Return whether the silence of a namespace is neither the pulls of its hosts nor a part of a lost connection."""
    if not cluster.within(place).no_heartbeats:
        return False
    return lost_at is None or continued(lost_at, newest, cluster.snapshot.timings)


def _of_reception(cluster: Cluster, reception: Reception) -> HeartbeatEvent | None:
    """Return the event of the state of the reception, None if it is in between."""
    timings, at = cluster.snapshot.timings, f"from {reception.server or 'the NATS of wasmCloud v2'}"
    if reception.state is ReceptionState.DENIED:
        text = f"host_manager may not receive heartbeats {at} ({reception.error}): {_GRANT}"
        return HeartbeatsDenied(**_common(cluster, reception), reason=LossReason.SUBSCRIPTION_DENIED, message=text)
    if reception.state is ReceptionState.LOST and reception.seconds >= timings.heartbeat:
        text = f"host_manager receives no heartbeats {at} ({reception.error}): {_CHECK}"
        return HeartbeatsLost(**_common(cluster, reception), reason=LossReason.CONNECTION_LOST, message=text)
    if reception.state is not ReceptionState.RECEIVING:
        return None
    if cluster.other_nats:
        text = f"host_manager receives no heartbeats {at}, and the runtime-operator records some: {_OTHER}"
        return HeartbeatsLost(**_common(cluster, reception), reason=LossReason.HEARTBEATS_NOT_RECEIVED, message=text)
    complete = not cluster.hosts and reception.seconds >= timings.silence
    if complete or (reception.count and reception.seconds >= timings.heartbeat):
        return _restored(NATS, HOST_MANAGER, cluster, reception.server)
    return None


def _silence(cluster: Cluster, place: str, newest: float) -> HeartbeatsLost:
    """Return the event of a namespace of Hosts without heartbeats; its cause is that of ``trellis explain``."""
    part = cluster.within(place)
    line = next((line for line in operator_lines(part) if line.trouble), None) or heartbeats_stopped(part, Rank.SERVICE)
    return HeartbeatsLost(
        scope=NAMESPACE,
        name=place,
        since=_time(newest),
        server="",
        hosts=_hosts_of(cluster, place),
        reason=line.reason,
        message=line.shown,
    )


def _restored(scope: Scope, name: str, cluster: Cluster, server: str = "") -> HeartbeatsRestored:
    """Return the end of an outage; its begin is set when it is published."""
    hosts = _all_hosts(cluster) if scope == NATS else _hosts_of(cluster, name)
    return HeartbeatsRestored(scope=scope, name=name, since=_time(cluster.snapshot.now), server=server, hosts=hosts)


def _common(cluster: Cluster, reception: Reception) -> dict[str, Any]:
    """Return the fields about the reception. Of a connection that delivers nothing, the last interval is known."""
    is_connected = reception.state is ReceptionState.RECEIVING
    seconds = min(reception.seconds, cluster.snapshot.timings.silence) if is_connected else reception.seconds
    return {
        "scope": NATS,
        "name": HOST_MANAGER,
        "since": _time(cluster.snapshot.now - seconds),
        "server": reception.server,
        "hosts": _all_hosts(cluster),
    }


def _all_hosts(cluster: Cluster) -> int | None:
    return len(cluster.hosts) if cluster.snapshot.knows(Part.HOSTS) else None


def _hosts_of(cluster: Cluster, place: str) -> int:
    return sum(host.meta.namespace == place for host in cluster.hosts)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
