"""Outages of heartbeats: one event for each and one for its end, over failed attempts, leaders and a lost bus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from host_manager.domain.v2.outages import HeartbeatEvent, Outages
from host_manager.domain.v2.published import Published
from support.suite.naming import lacking
from support.v2.recordings import recording
from trellis.events.subjects import event_subject
from trellis.events.wasmcloud_v2 import HeartbeatsDenied, HeartbeatsLost, HeartbeatsRestored
from trellis.v2.cluster import Cluster
from trellis.v2.host_messages import HostMessages
from trellis.v2.reasons import Reason
from trellis.v2.reception import Reception, ReceptionState
from trellis.v2.snapshot import Part, Snapshot
from unit.host_manager.test_v2_events import NOW, SYSTEM, UNWATCHED, a_host, some, times_of, world

SERVER = "nats://nats.wasmcloud-system:4222"
HOSTS = 100
LONG = 1000.0
UP = Reception(ReceptionState.RECEIVING, LONG, SERVER, "", 5000)
CONNECTING = Reception()
DENIAL = 'permissions violation for subscription to "runtime.operator.heartbeat.>"'


def lost(seconds: float) -> Reception:
    return Reception(ReceptionState.LOST, seconds, SERVER, f"connection refused {seconds}")


def back(seconds: float, count: int = 0) -> Reception:
    return Reception(ReceptionState.RECEIVING, seconds, SERVER, "", count)


def denied(seconds: float = 1.0) -> Reception:
    return Reception(ReceptionState.DENIED, seconds, SERVER, DENIAL)


def after(seconds: float, age: float = 3.0) -> Snapshot:
    """Return the cluster ``seconds`` after NOW; the last heartbeat of each host was recorded ``age`` seconds before."""
    return replace(some([age - seconds + number / HOSTS for number in range(HOSTS)]), now=NOW + seconds)


class Term:
    """Publishes what is due, as the reconciler does; ``bus``: whether the bus stores events."""

    def __init__(self, published: Published | None = None) -> None:
        self.outages, self.published = Outages(), published or Published()
        self.events: list[HeartbeatEvent] = []
        self.bus = True

    def see(self, snapshot: Snapshot, reception: Reception | None = UP, watched: float | None = None) -> list[str]:
        watched = snapshot.now if watched is None else watched
        self.outages.observe(Cluster(snapshot), self.published, reception, watched)
        if not self.bus:
            return []
        found = self.outages.due(self.published)
        for event in found:
            self.published.note(event)
            self.outages.note(event)
        assert self.outages.due(self.published) == [], "what is stored is not due any more"
        self.events += found
        return [shown(event) for event in found]


def shown(event: HeartbeatEvent) -> str:
    return f"{event.event_name} {event.name}"


def each(first: float, last: float) -> Iterator[float]:
    """Yield the times of the regular runs."""
    while first <= last:
        yield first
        first += 15.0


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW + seconds, UTC)


def test_attempts_to_connect_are_one_outage() -> None:
    term = Term()
    for seconds in each(0, 600):
        term.see(after(seconds), lost(seconds))
    term.see(after(610), back(5))
    term.see(after(625), back(20, 3))
    for seconds in each(640, 900):
        term.see(after(seconds), back(seconds - 605, 500))
    assert [shown(event) for event in term.events] == ["lost host_manager", "restored host_manager"]
    [begin, end] = term.events
    assert isinstance(begin, HeartbeatsLost)
    assert (begin.scope, begin.since, begin.server, begin.hosts) == ("Nats", at(0), SERVER, HOSTS)
    assert begin.reason == "ConnectionLost"
    assert lacking(begin.message, SERVER, "connection refused", "TRELLIS_V2_NATS") == []
    assert (end.scope, end.since, end.server, end.hosts) == ("Nats", at(0), SERVER, HOSTS)


def test_an_interruption_of_less_than_an_interval_is_no_outage() -> None:
    term = Term()
    term.see(after(0), lost(10))
    for seconds in each(15, 100):
        term.see(after(seconds), back(seconds, 10))
    assert term.events == []


def test_nothing_is_concluded_before_the_first_answer_of_nats() -> None:
    term = Term()
    for seconds in each(0, 300):
        assert term.see(after(seconds, seconds + 3), CONNECTING) == []


def test_an_outage_of_nats_with_the_silence_of_all_hosts_is_one_outage_until_one_reports() -> None:
    term = Term()
    for seconds in each(0, 300):
        term.see(after(seconds, seconds + 3), lost(seconds))
    for seconds in each(315, 600):  # NATS is back, and the hosts are not yet
        term.see(after(seconds, seconds + 3), back(seconds - 301))
    assert [shown(event) for event in term.events] == ["lost host_manager"]
    assert term.see(after(615), back(314, 7)) == ["restored host_manager"]
    for seconds in each(630, 900):
        assert term.see(after(seconds), back(seconds - 301, 900)) == []


@pytest.mark.parametrize("reception", [UP, None, denied(LONG)], ids=["received", "not configured", "denied"])
def test_the_silence_of_all_hosts_is_one_outage_of_their_namespace(reception: Reception | None) -> None:
    former = HeartbeatsDenied(
        scope="Nats", name="host_manager", since=at(-LONG), server=SERVER, hosts=1, reason="x", message=""
    )
    published = Published()
    if reception is not None and reception.state is ReceptionState.DENIED:
        published.note(former)
    term = Term(published)
    for seconds in each(0, 600):
        term.see(after(seconds, seconds + 3), reception)
    assert [shown(event) for event in term.events] == [f"lost {SYSTEM}"]
    assert term.see(after(615), reception) == [f"restored {SYSTEM}"]
    [begin, end] = term.events
    assert isinstance(begin, HeartbeatsLost)
    assert (begin.scope, begin.since, begin.server, begin.hosts) == ("Namespace", at(-3), "", HOSTS)
    assert begin.reason == Reason.HEARTBEATS_STOPPED
    assert begin.message
    assert end.since == begin.since
    for seconds in each(630, 900):
        assert term.see(after(seconds), reception) == []


def test_the_silence_of_all_hosts_is_published_within_two_minutes_of_bookmarks() -> None:
    """A watch delivers a bookmark each minute at least."""
    term, found = Term(), []
    for seconds in each(0, 120):
        found += [seconds for _ in term.see(after(seconds, seconds), watched=NOW + seconds // 60 * 60)]
    assert len(found) == 1


def test_a_watch_that_delivers_nothing_is_no_silence_of_hosts() -> None:
    term = Term()
    for seconds in each(0, 900):
        assert term.see(after(seconds, seconds + 3), watched=NOW + 10) == []
    assert term.see(after(900)) == []


def test_a_clock_that_differs_is_no_silence_once_a_heartbeat_is_recorded() -> None:
    """Before, the Hosts of the first list look silent."""
    term = Term()
    term.see(after(0, 7200))
    term.see(after(15))
    for seconds in each(30, 300):
        term.see(after(seconds))
    assert term.events == []


def test_hosts_that_report_long_after_the_connection_was_lost_have_an_outage_of_their_own() -> None:
    term = Term()
    for seconds in each(0, 300):
        term.see(after(seconds), lost(seconds))
    for seconds in each(315, 600):
        term.see(after(seconds, seconds - 300), lost(seconds))
    assert [shown(event) for event in term.events] == ["lost host_manager", f"lost {SYSTEM}"]


def test_after_the_end_of_an_outage_hosts_have_time_to_connect() -> None:
    term = Term()
    for seconds in each(0, 300):
        term.see(after(seconds, seconds + 3), lost(seconds))
    term.see(after(320, 323), back(19, 1))  # one host of another operator
    for seconds in (325.0, 330.0, 335.0):
        assert term.see(after(seconds, seconds + 3), back(seconds - 301, 5)) == []
    assert [shown(event) for event in term.events] == ["lost host_manager", "restored host_manager"]


def test_an_outage_of_the_bus_at_the_same_time_delays_both_events() -> None:
    term = Term()
    term.bus = False
    for seconds in each(0, 300):
        term.see(after(seconds, seconds + 3), lost(seconds))
    for seconds in each(315, 360):
        term.see(after(seconds), back(seconds - 301, 50))
    term.bus = True
    assert term.see(after(375), back(74, 60)) == ["lost host_manager", "restored host_manager"]
    [begin, end] = term.events
    assert begin.since == end.since == at(0)
    assert term.see(after(390), back(89, 60)) == []


def test_outages_in_turn_while_the_bus_is_unavailable_are_one() -> None:
    term = Term()
    term.bus = False
    for begin in (0.0, 100.0, 200.0):
        term.see(after(begin + 20), lost(20))
        term.see(after(begin + 60), back(30, 5))
    term.see(after(320), lost(20))
    term.see(after(330), denied())
    term.bus = True
    assert term.see(after(345), denied(16)) == ["lost host_manager", "denied host_manager"]
    assert term.events[0].since == at(0)


def test_the_bus_without_a_nats_of_hosts_delays_the_silence_of_hosts_and_its_end() -> None:
    term = Term()
    term.bus = False
    for seconds in each(0, 300):
        term.see(after(seconds, seconds + 3), None)
    term.see(after(315), None)
    term.bus = True
    assert term.see(after(316), None) == [f"lost {SYSTEM}", f"restored {SYSTEM}"]


def test_a_new_leader_continues_an_outage_and_publishes_its_end() -> None:
    first = Term()
    for seconds in each(0, 60):
        first.see(after(seconds), lost(seconds))
    second = Term(recalled(first.events))
    for seconds in each(60, 300):
        assert second.see(after(seconds), lost(seconds - 60)) == []
    assert second.see(after(330), back(20, 5)) == ["restored host_manager"]
    assert second.events[0].since == at(0)
    third = Term(recalled([*first.events, *second.events]))
    assert third.see(after(345), back(15, 5)) == []


def test_a_new_leader_takes_the_silence_of_hosts_for_the_outage_that_is_published() -> None:
    first = Term()
    for seconds in each(0, 60):
        first.see(after(seconds, seconds + 3), lost(seconds))
    second = Term(recalled(first.events))
    for seconds in each(60, 600):
        assert second.see(after(seconds, seconds + 3), back(seconds - 50)) == []


def recalled(events: Sequence[HeartbeatEvent]) -> Published:
    """Return what a later leader reads: the last event of each subject."""
    last = {event_subject("c", event): number for number, event in enumerate(events)}
    published = Published()
    for number in sorted(last.values()):
        published.note(events[number])
    return published


def test_an_outage_is_published_again_in_a_stream_that_replaces_the_former_one() -> None:
    term = Term()
    for seconds in each(0, 60):
        term.see(after(seconds), lost(seconds))
    term.published = Published()
    assert term.see(after(75), lost(75)) == ["lost host_manager"]


def test_a_denied_subscription_is_no_outage_and_published_once() -> None:
    term = Term()
    for seconds in each(0, 300):
        term.see(after(seconds), denied(seconds))
    for seconds in each(315, 600):
        term.see(after(seconds), back(seconds - 301, 50))
    [begin, end] = term.events
    assert isinstance(begin, HeartbeatsDenied)
    assert begin.reason == "SubscriptionDenied"
    assert lacking(begin.message, "runtime.operator.heartbeat.>", SERVER) == []
    assert isinstance(end, HeartbeatsRestored)


def test_a_nats_that_delivers_none_of_the_recorded_heartbeats_is_an_outage_of_the_reception() -> None:
    """It is that of another account, or it has no connection to the servers of the hosts."""
    term, nothing = Term(), HostMessages(35.0, {})
    for seconds in each(0, 300):
        term.see(replace(after(seconds), messages=nothing), back(LONG + seconds, 900))
    [begin] = term.events
    assert isinstance(begin, HeartbeatsLost)
    assert (begin.scope, begin.reason, begin.since) == ("Nats", "HeartbeatsNotReceived", at(-35))
    found = recording("03").messages(-1, 3)
    assert term.see(replace(after(315), messages=found), back(LONG + 315, 901)) == ["restored host_manager"]


def test_without_hosts_a_connection_is_an_end() -> None:
    term = Term()
    empty = replace(world([]), now=NOW)
    term.see(empty, lost(20))
    assert term.see(empty, back(20)) == []
    assert term.see(empty, back(36)) == ["restored host_manager"]


def test_without_permission_for_hosts_the_reception_is_published_with_an_unknown_number() -> None:
    term = Term()
    unknown = replace(after(0, 500), unread=UNWATCHED | {Part.HOSTS: "no permission"}, hosts=())
    assert term.see(unknown, lost(20)) == ["lost host_manager"]
    assert term.events[0].hosts is None
    assert term.see(replace(unknown, now=NOW + 300), lost(320)) == []


def test_one_of_two_operators_is_named() -> None:
    term = Term()
    for seconds in each(0, 300):
        hosts = [a_host(number, 3.0, namespace="system-a") for number in range(3)]
        others = [a_host(number, 3.0 - seconds, namespace="system-b") for number in range(3)]
        term.see(world([*hosts, *others], now=NOW + seconds), None)
    [event] = term.events
    assert (shown(event), event.hosts) == ("lost system-a", 3)


@pytest.mark.parametrize("name", ["12"])
def test_the_recorded_outage_has_one_event_and_its_end_one(name: str) -> None:
    term = Term()
    for seconds in times_of(name):
        term.see(recording(name).snapshot(seconds, unread=UNWATCHED), None)
    assert [shown(event) for event in term.events] == [f"lost {SYSTEM}", f"restored {SYSTEM}"]
