"""Heartbeats of hosts: when they count, what is kept of them, and what a connection that fails does."""

from __future__ import annotations

import asyncio
from math import isnan
from pathlib import Path

import structlog

from host_manager.settings import Settings
from host_manager.v2.heartbeats import CompleteHeartbeats
from host_manager.v2.metrics import HostNumbers
from support.cluster.kube_world import until
from support.v2.explained import bare
from support.v2.recordings import recording
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.follow.heartbeats import Heartbeats, HeartbeatTimings, heartbeats_of
from trellis.telemetry import Metrics, setup
from trellis.v2.host_messages import Collector
from trellis.v2.messages import HEARTBEATS, HostHeartbeat
from trellis.v2.timings import V2Timings

FAST = HeartbeatTimings(first=0.01, most=0.02)
NOWHERE = NatsAddress("nats://127.0.0.1:1")


async def test_a_nats_that_is_unavailable_is_reported_once_and_gives_no_messages() -> None:
    kube = bare()
    tries = 0

    def address() -> NatsAddress:
        nonlocal tries
        tries += 1
        return NOWHERE

    heartbeats = CompleteHeartbeats(Heartbeats(address, "test", FAST), kube, V2Timings().silence)
    connected = "trellis_wasmcloud_heartbeats_connected"
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(heartbeats.run())
        try:
            await until(lambda: tries > 3, "it is tried again")
            assert heartbeats.messages({"x"}) is None
            assert kube.telemetry.metrics.registry.get_sample_value(connected, {"service": "test"}) == 0
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert kube.telemetry.metrics.registry.get_sample_value(connected, {"service": "test"}) is None
    assert [line["log_level"] for line in logs] == ["warning"]


async def test_a_file_that_cannot_be_used_ends_nothing_and_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    file.write_text("not a JWT")
    received = heartbeats_of(Settings(v2_nats="nats://127.0.0.1:1", v2_nats_credentials_file=file), "test", FAST)
    assert received is not None
    task = asyncio.create_task(received.run())
    try:
        await until(lambda: str(file) in received.messages(0.0).error, "the file is named")
        first = received.messages(0.0).error
        file.unlink()
        await until(lambda: received.messages(0.0).error != first, "another problem of the file")
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_heartbeats_that_are_too_old_are_dropped_with_their_bytes() -> None:
    collector = Collector()
    beats = [(subject, payload) for _, subject, payload in recording("03").payloads(0.0, 2.0) if HEARTBEATS in subject]
    for at, (subject, payload) in enumerate(beats):
        collector.heartbeat(subject, payload, float(at))
    collector.forget(len(beats) - 1.0)
    assert len(collector.hosts) == 1
    collector.forget(1e9)
    assert not collector.hosts
    assert collector._bytes == 0


def test_a_heartbeat_is_parsed_once() -> None:
    collector = Collector()
    [(_, subject, payload), *_] = recording("03").payloads(0.0, 2.0)
    collector.heartbeat(subject, payload, 1.0)
    [first], [second] = (collector.result(1.0).hosts.values() for _ in range(2))
    assert first is second
    collector.heartbeat(subject, b"garbage", 2.0)
    [third] = collector.result(1.0).hosts.values()
    assert (third.heartbeat, third.count, third.at) == (None, 2, 2.0)


def test_heartbeats_of_invented_hosts_are_counted_and_not_parsed() -> None:
    collector = Collector()
    beats = [(subject, payload) for _, subject, payload in recording("03").payloads(0.0, 2.0) if HEARTBEATS in subject]
    subject, payload = beats[0]
    collector.heartbeat(subject, payload, 1.0)
    collector.heartbeat(f"{HEARTBEATS}.broken", b"garbage", 1.0)
    collector.heartbeat(f"{HEARTBEATS}.invented", payload, 1.0)
    known = subject.removeprefix(f"{HEARTBEATS}.")
    found = collector.result(40.0, wanted={known, "broken"}).hosts
    assert {host for host, last in found.items() if last.heartbeat is not None} == {known}
    assert {host for host, last in found.items() if last.reason} == {"broken"}
    assert set(found) == {known, "broken", "invented"}


def test_the_series_of_a_host_end_with_it() -> None:
    telemetry = setup("test", metrics=Metrics())
    numbers = HostNumbers(telemetry)

    def cpu(host: str) -> float | None:
        labels = {"service": "test", "host_namespace": "a", "host": host}
        return telemetry.metrics.registry.get_sample_value("trellis_wasmcloud_host_cpu_ratio", labels)

    numbers.show({("a", "one"): HostHeartbeat("1", cpu=50.0), ("a", "two"): HostHeartbeat("2")})
    assert cpu("one") == 0.5
    unknown = cpu("two")
    assert unknown is not None
    assert isnan(unknown)
    numbers.show({("a", "two"): HostHeartbeat("2", cpu=10.0)})
    assert (cpu("one"), cpu("two")) == (None, 0.1)
