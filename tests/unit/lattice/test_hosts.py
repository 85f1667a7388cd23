"""Hosts by their heartbeats, and the meaning of silence."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from support.lattices.lattice_recordings import messages
from trellis.lattice.domain.hosts import MAX_HOSTS, Host, Hosts, Presence, presence_of, read_host
from trellis.lattice.domain.reading import LatticeDataError, event_time, host_data, read_event
from trellis.lattice.timings import LatticeTimings

RECORDED = [message["data"]["data"] for message in messages("host_heartbeat")]
ID = "ND3QVQQMYIN7L6WG6VHEVIC6N44ZU6GLJ7RCZW4ORJ5D4KENQREOFPCF"


def test_a_recorded_heartbeat_is_read_whole() -> None:
    host = read_host(next(data for data in RECORDED if data["components"]))
    assert (host.id, host.version, host.name) == (ID, "1.9.2", "late-resonance-5982")
    assert host.labels["zone"] == "a"
    assert host.uptime_seconds == 91
    (component,) = host.components
    assert (component.id, component.application, component.instances) == (
        "hello_world-http_component",
        "hello-world",
        1,
    )
    assert component.image == "ghcr.io/example/http-hello-world:0.1.0"
    assert host.applications == ("hello-world",)


def test_every_recorded_heartbeat_can_be_read() -> None:
    assert len(RECORDED) == 15
    assert {read_host(data).id for data in RECORDED} == {ID}


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (None, "object"),
        ([], "object"),
        ({}, "host_id"),
        ({"host_id": 7}, "host_id"),
        ({"host_id": ""}, "host_id"),
        ({"host_id": "N1", "labels": ["a"]}, "labels"),
        ({"host_id": "N1", "labels": {"a": 1}}, "labels"),
        ({"host_id": "N1", "uptime_seconds": "1"}, "uptime_seconds"),
        ({"host_id": "N1", "uptime_seconds": -1}, "uptime_seconds"),
        ({"host_id": "N1", "uptime_seconds": True}, "uptime_seconds"),
        ({"host_id": "N1", "components": {"a": 1}}, "components"),
        ({"host_id": "N1", "components": ["a"]}, "components"),
        ({"host_id": "N1", "providers": [{"id": 1}]}, "id"),
        ({"host_id": "N1", "components": [{"annotations": {"wasmcloud.dev/appspec": 1}}]}, "annotations"),
    ],
)
def test_data_that_describes_no_host_is_refused_by_field(data: object, names: str) -> None:
    with pytest.raises(LatticeDataError, match=names):
        read_host(data)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"{", b"[]", b"1", b'{"data": []}', b'{"data": null}'])
def test_an_invalid_event_is_refused(payload: bytes) -> None:
    with pytest.raises(LatticeDataError):
        read_event(payload)


def test_the_data_of_a_recorded_event_is_found() -> None:
    event = messages("host_heartbeat")[0]["data"]
    assert host_data(read_event(json.dumps(event).encode())) == event["data"]


def test_a_message_without_a_lattice_belongs_to_its_source() -> None:
    event = {"source": "N1", "data": {"labels": {}}}
    assert host_data(read_event(json.dumps(event).encode())) == {"host_id": "N1", "labels": {}}


def test_data_may_stand_in_base64() -> None:
    event = {"source": "N1", "data_base64": base64.b64encode(b'{"labels": {}}').decode()}
    assert host_data(read_event(json.dumps(event).encode())) == {"host_id": "N1", "labels": {}}
    for none in ("ä", "e30", base64.b64encode(b"[").decode(), base64.b64encode(b"[]").decode()):
        with pytest.raises(LatticeDataError):
            read_event(json.dumps({"data_base64": none}).encode())


@pytest.mark.parametrize(
    ("time", "published_at"),
    [
        ("2026-11-21T04:57:34.116784543Z", "2026-11-21T04:57:34.116784543Z"),
        ("2026-11-21T04:57:34Z", "2026-11-21T04:57:34.000000000Z"),
        ("2026-11-21t04:57:34.5z", "2026-11-21T04:57:34.500000000Z"),
        ("2026-11-21T04:57:34.5+00:00", "2026-11-21T04:57:34.500000000Z"),
        ("2026-11-21T01:27:34.25-03:30", "2026-11-21T04:57:34.250000000Z"),
        (None, ""),
        (5, ""),
        ("yesterday", ""),
        ("2026-11-21T25:57:34Z", ""),
        ("0001-01-01T00:00:00+23:00", ""),
    ],
)
def test_a_time_is_read_in_every_form_of_it(time: object, published_at: str) -> None:
    assert event_time({"time": time}) == published_at


LIMIT = LatticeTimings().silence


@pytest.mark.parametrize(
    ("last_message_at", "now", "linked", "expected"),
    [
        pytest.param(100.0, 100.0 + LIMIT, 0.0, Presence.PRESENT, id="heard just in time"),
        pytest.param(100.0, 100.1 + LIMIT, 0.0, Presence.HEARTBEAT_MISSING, id="not heard while we listened"),
        pytest.param(100.0, 1000.0, None, Presence.UNKNOWN, id="our link is away"),
        pytest.param(100.0, 1000.0, 1000.0 - LIMIT, Presence.UNKNOWN, id="our link was away meanwhile"),
        pytest.param(100.0, 1000.0, 999.9 - LIMIT, Presence.HEARTBEAT_MISSING, id="our link is back for long enough"),
        pytest.param(None, 10.0, 0.0, Presence.UNKNOWN, id="never heard, we have just begun"),
        pytest.param(None, 100.0, 0.0, Presence.HEARTBEAT_MISSING, id="never heard, though we listen"),
        pytest.param(100.0, 101.0, None, Presence.UNKNOWN, id="heard a moment before the link broke"),
    ],
)
def test_a_heartbeat_is_missing_only_while_the_connection_is_up(
    last_message_at: float | None, now: float, linked: float | None, expected: Presence
) -> None:
    assert presence_of(last_message_at, now, linked, LIMIT) is expected


def a_host(host_id: str = "N1", **given: Any) -> Host:
    return Host(**{"id": host_id, "version": "1.9.2", "uptime_seconds": 1, **given})


def test_each_change_but_the_uptime_counts() -> None:
    hosts = Hosts()
    assert hosts.process(a_host(), 0)
    assert not hosts.process(a_host(uptime_seconds=31), 30)
    assert hosts.process(a_host(uptime_seconds=61, labels={"zone": "b"}), 60)
    assert hosts.sightings()[0].at == 60
    assert hosts.sightings()[0].host.uptime_seconds == 61


def test_a_stopped_host_is_deleted_at_once_and_one_without_heartbeat_after_the_timeout() -> None:
    hosts = Hosts()
    for host_id in ("N1", "N2", "N3"):
        hosts.process(a_host(host_id), 0)
    assert hosts.left("N2")
    assert not hosts.left("N2")
    hosts.process(a_host("N3"), 50)
    assert hosts.remove_stale(80, None) == ()
    assert [host.id for host in hosts.remove_stale(80, 0)] == ["N1"]
    assert [seen.host.id for seen in hosts.sightings()] == ["N3"]


def test_the_next_missing_heartbeat_is_that_of_the_oldest_one() -> None:
    hosts = Hosts(silence=70)
    assert hosts.stale_in(100) == 70, "that of a host whose first heartbeat comes now"
    hosts.process(a_host("N1"), 100)
    hosts.process(a_host("N2"), 120)
    assert hosts.stale_in(130) == 40
    hosts.process(a_host("N1"), 130)
    assert hosts.stale_in(130) == 60
    assert hosts.stale_in(200) < 0, "missing by now, unless the connection is younger"


def test_invented_hosts_do_not_fill_the_memory() -> None:
    hosts = Hosts()
    for number in range(MAX_HOSTS):
        assert hosts.process(a_host(f"N{number}"), 0)
    assert not hosts.process(a_host("one more"), 0)
    assert len(hosts) == MAX_HOSTS
    assert not hosts.process(a_host("N0", uptime_seconds=2), 1)
    assert hosts.presence("N0", 70.5, 0) is Presence.PRESENT


def test_an_uptime_beyond_all_times_is_cut() -> None:
    assert read_host({"host_id": "N1", "uptime_seconds": 2**63}).uptime_seconds == 2**31 - 1


def test_an_older_message_of_a_host_does_not_override_a_newer_one() -> None:
    hosts = Hosts()
    hosts.process(a_host(labels={"zone": "b"}), 10, "2")
    assert not hosts.process(a_host(labels={"zone": "a"}), 30, "1"), "it came late"
    assert hosts.sightings()[0].host.labels == {"zone": "b"}
    assert (hosts.sightings()[0].at, hosts.sightings()[0].received_at) == (30, 10)
    assert not hosts.left("N1", 31, "1"), "it started again after that"
    assert hosts.process(a_host(labels={"zone": "a"}), 10 + LIMIT + 1, "1"), "its clock was set back"
    assert hosts.left("N1", 90, "2")


def test_a_late_heartbeat_counts() -> None:
    hosts = Hosts()
    hosts.process(a_host(), 0, "2")
    hosts.process(a_host(), 60, "1")
    assert hosts.presence("N1", 100, 0) is Presence.PRESENT
