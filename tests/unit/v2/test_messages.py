"""Messages of hosts: the recorded ones are read, and any other bytes are named unreadable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.v2.recordings import SITUATIONS, recording
from trellis.v2.host_messages import BYTES_MOST, HOSTS_MOST, Collector
from trellis.v2.interfaces import Interface
from trellis.v2.messages import (
    HEARTBEATS,
    LARGEST,
    HostHeartbeat,
    Unreadable,
    WorkloadState,
    WorkloadStatus,
    read_heartbeat,
    read_reply,
    state_named,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
FIELDS = [
    *("id", "hostname", "friendlyName", "friendly_name", "version", "labels", "startedAt", "osArch", "osName"),
    *("systemCpuUsage", "systemMemoryTotal", "componentCount", "workload_count", "imports", "exports", "httpPort"),
    *("environment", "workloadStatus", "workload_status", "workloadId", "workloadState", "message", "namespace"),
    *("package", "interfaces"),
]
MESSAGES = st.dictionaries(st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON))


def heartbeat(**fields: Any) -> HostHeartbeat:
    found = read_heartbeat(json.dumps({"id": "h"} | fields).encode())
    assert isinstance(found, HostHeartbeat)
    return found


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_recorded_message_is_read(name: str) -> None:
    for _, subject, payload in recording(name).payloads(0, 1e9):
        if subject.startswith(HEARTBEATS):
            found = read_heartbeat(payload)
            assert isinstance(found, HostHeartbeat)
            assert subject == f"{HEARTBEATS}.{found.id}"
            assert found.name
            assert found.memory_total
            assert found.version == "2.7.0"
        elif b"workloadStatus" in payload:
            status = read_reply(payload)
            assert isinstance(status, WorkloadStatus)
            assert status.state not in {WorkloadState.OTHER, WorkloadState.UNSPECIFIED}


def test_interfaces_are_a_set_in_each_order_and_repetition() -> None:
    [*beats] = [found for _, subject, found in recording("01").payloads(0, 99) if subject.startswith(HEARTBEATS)]
    answer = next(found for _, subject, found in recording("01").payloads(0, 99) if subject.startswith("_INBOX"))
    first, asked = read_heartbeat(beats[0]), read_heartbeat(answer)
    assert isinstance(first, HostHeartbeat)
    assert isinstance(asked, HostHeartbeat)
    assert first.imports == asked.imports
    assert Interface("wasmcloud", "messaging", "consumer", "0.3.0") in first.imports
    assert not any(item.built_in for item in first.imports)


@pytest.mark.parametrize("value", ["4", 4])
@pytest.mark.parametrize("key", ["workloadCount", "workload_count"])
def test_integers_of_64_bits_are_strings_and_both_names_are_read(key: str, value: object) -> None:
    assert heartbeat(**{key: value}).workloads == 4


def test_an_omitted_count_is_zero_and_one_of_another_type_is_not_known() -> None:
    assert heartbeat().workloads == 0
    assert heartbeat(workloadCount="many").workloads is None
    assert heartbeat(workloadCount=True).workloads is None
    assert heartbeat(workloadCount=-1).workloads is None


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "JSON"),
        (b"null", "JSON"),
        (b"{}", "id"),
        (b'{"id": 3}', "id"),
        (b'{"id": "' + b"a" * LARGEST + b'"}', str(LARGEST)),
    ],
)
def test_garbage_is_unreadable_with_a_reason(payload: bytes, named: str) -> None:
    found = read_heartbeat(payload)
    assert isinstance(found, Unreadable)
    assert named in found.reason
    assert isinstance(read_reply(payload), Unreadable)


@given(MESSAGES)
def test_no_message_raises(message: dict[str, Any]) -> None:
    payload = json.dumps(message).encode()
    for found in (read_heartbeat(payload), read_reply(payload)):
        assert isinstance(found, HostHeartbeat | WorkloadStatus | Unreadable)


@given(st.binary(max_size=200))
def test_no_bytes_raise(payload: bytes) -> None:
    read_heartbeat(payload)
    read_reply(payload)


def test_a_state_of_a_later_version_is_another_one() -> None:
    assert state_named("WORKLOAD_STATE_ERROR") is WorkloadState.ERROR
    assert state_named("WORKLOAD_STATE_HIBERNATED") is WorkloadState.OTHER
    assert state_named("") is WorkloadState.UNSPECIFIED


def test_a_message_has_no_password_of_a_url() -> None:
    message = "url https://user:secret@registry.test/v2/ refused"
    status = {"workloadId": "w", "workloadState": "WORKLOAD_STATE_ERROR", "message": message}
    found = read_reply(json.dumps({"workloadStatus": status}).encode())
    assert isinstance(found, WorkloadStatus)
    assert "secret" not in found.message
    assert "registry.test" in found.message


def test_of_many_heartbeats_the_last_of_each_host_is_kept() -> None:
    collector = Collector()
    for beat in range(30_000):
        host = f"h{beat % 3}"
        payload = json.dumps({"id": host, "workloadCount": str(beat)}).encode()
        collector.heartbeat(f"{HEARTBEATS}.{host}", payload, float(beat))
    found = collector.result(3.0)
    assert {name: (host.count, host.at) for name, host in found.hosts.items()} == {
        "h0": (10_000, 29_997.0),
        "h1": (10_000, 29_998.0),
        "h2": (10_000, 29_999.0),
    }
    last = found.hosts["h2"].heartbeat
    assert last is not None
    assert last.workloads == 29_999


def test_beyond_the_bounds_messages_are_counted_and_absence_proves_nothing() -> None:
    collector = Collector()
    for number in range(HOSTS_MOST + 5):
        collector.heartbeat(f"{HEARTBEATS}.h{number}", b"{}", 0.0)
    assert collector.dropped == 5
    assert len(collector.hosts) == HOSTS_MOST
    found = collector.result(60.0)
    assert found.dropped == 5
    assert not found.missed("somebody", 20.0)
    large = Collector()
    for number in range(BYTES_MOST // LARGEST + 2):
        large.heartbeat(f"{HEARTBEATS}.h{number}", b"x" * LARGEST, 0.0)
    assert large.dropped == 2


def test_a_heartbeat_that_cannot_be_parsed_is_still_a_heartbeat() -> None:
    collector = Collector()
    collector.heartbeat(f"{HEARTBEATS}.h", b"garbage", 7.0)
    found = collector.result(60.0)
    assert found.hosts["h"].heartbeat is None
    assert found.hosts["h"].reason
    assert not found.missed("h", 20.0)


def test_a_heartbeat_that_names_another_host_describes_none() -> None:
    collector = Collector()
    collector.heartbeat(f"{HEARTBEATS}.h", b'{"id": "other", "workloadCount": "9"}', 7.0)
    found = collector.result(60.0).hosts["h"]
    assert found.heartbeat is None
    assert "other" in found.reason


def test_of_the_replies_only_failed_starts_are_kept() -> None:
    found = recording("04").messages(0, 70, replies=True)
    assert found.replies
    assert {reply.state for reply in found.replies.values()} == {WorkloadState.ERROR}
    collector = Collector()
    collector.expect_replies()
    collector.reply("_INBOX.x", b'{"workloadStatus":{"workloadId":"w","workloadState":"WORKLOAD_STATE_RUNNING"}}')
    collector.reply("_INBOX.x", b'{"anything": "WORKLOAD_STATE_ERROR"}')
    assert collector.result(1.0).replies == {}
