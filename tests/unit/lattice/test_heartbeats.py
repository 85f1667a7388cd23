"""Heartbeats of wasmCloud v2 during a page: a window of the last seconds, and an interruption proves nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from support.nats.buses import eventually
from support.v2.recordings import recording
from trellis.config.settings import SettingsError
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.listen import Listened
from trellis.lattice.follow import heartbeats as module
from trellis.lattice.follow.heartbeats import HEARTBEAT_SUBJECT, Heartbeats, HeartbeatTimings
from trellis.lattice.timings import ListenTimings
from trellis.v2.host_messages import HostMessages
from trellis.v2.reception import Reception, ReceptionState
from trellis.v2.timings import V2Timings
from unit.lattice.test_listen import Server, serving

NOW = 1_790_000_000.0
WINDOW = V2Timings().silence
BEATS = [(subject, payload) for _, subject, payload in recording("03").payloads(-1, 3) if "heartbeat" in subject]
SUBJECT, PAYLOAD = next((subject, payload) for subject, payload in BEATS if subject.startswith("runtime.operator"))
HOST = SUBJECT.rpartition(".")[2]
LEAST = V2Timings().heartbeat + V2Timings().slack


class Nats:
    """A NATS with a connection for each of ``visits``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 1000.0
        self.requested: list[tuple[list[str], float]] = []
        self._over = asyncio.Event()
        self.unusable: list[str] = []
        self.visits: list[Callable[[Callable[[str, bytes], None], Callable[[], bool]], Awaitable[Listened]]] = []
        monkeypatch.setattr(module, "listen", self._listen)
        timings = HeartbeatTimings(first=0.001, most=0.001)
        self.heartbeats = Heartbeats(self._address, "test", timings, clock=lambda: self.time)

    def _address(self) -> NatsAddress:
        if self.unusable:
            raise SettingsError(self.unusable.pop())
        return NatsAddress("nats://user:secret@nats:4222")

    async def _listen(
        self, _address: NatsAddress, _name: str, handlers: dict[str, Any], enough: Callable[[], bool], timings: Any
    ) -> Listened:
        self.requested.append(([*handlers], timings.listen))
        if not self.visits:
            self._over.set()
            await asyncio.Event().wait()
        return await self.visits.pop(0)(handlers[HEARTBEAT_SUBJECT], enough)

    async def run(self) -> None:
        """Run until all visits are over."""
        task = asyncio.create_task(self.heartbeats.run())
        async with asyncio.timeout(10):
            await self._over.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def messages(self) -> HostMessages:
        return self.heartbeats.messages(NOW)


async def test_the_numbers_of_the_last_seconds_are_kept_in_the_clock_of_the_api_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nats = Nats(monkeypatch)
    found: list[HostMessages] = []

    async def visit(take: Callable[[str, bytes], None], enough: Callable[[], bool]) -> Listened:
        assert enough() is False
        take(SUBJECT, PAYLOAD)
        nats.time += 10
        found.append(nats.messages())
        nats.time += WINDOW
        found.append(nats.messages())
        return Listened(WINDOW)

    nats.visits.append(visit)
    await nats.run()
    first, later = found
    assert first.hosts[HOST].at == pytest.approx(NOW - 10)
    assert first.hosts[HOST].heartbeat is not None
    assert (first.seconds, first.error) == (10, "")
    assert (later.hosts, later.seconds) == ({}, WINDOW)
    assert not first.missed("another", LEAST)
    assert later.missed(HOST, LEAST)


async def test_a_file_is_read_for_each_connection_and_one_that_cannot_be_used_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nats = Nats(monkeypatch)
    nats.unusable.append("TRELLIS_V2_NATS_CA_FILE: unreadable")
    await nats.run()
    assert nats.messages().error == "TRELLIS_V2_NATS_CA_FILE: unreadable"
    assert len(nats.requested) == 1, "the next connection reads it again"


async def test_one_subject_is_subscribed_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    nats = Nats(monkeypatch)
    await nats.run()
    assert nats.requested == [(["runtime.operator.heartbeat.>"], math.inf)]


async def test_after_an_interruption_a_missing_heartbeat_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nats = Nats(monkeypatch)
    found: list[HostMessages] = []

    async def refused(_take: Any, _enough: Callable[[], bool]) -> Listened:
        return Listened(error="nats://nats:4222: connection refused")

    async def first(_take: Callable[[str, bytes], None], enough: Callable[[], bool]) -> Listened:
        enough()
        nats.time += 100
        return Listened(100, error="after 100 s: connection lost")

    async def second(_take: Callable[[str, bytes], None], enough: Callable[[], bool]) -> Listened:
        found.append(nats.messages())
        enough()
        nats.time += 1
        found.append(nats.messages())
        return Listened(1)

    nats.visits += [refused, first, second]
    assert nats.messages().error
    await nats.run()
    unavailable, back = found
    assert unavailable.error == "after 100 s: connection lost"
    assert not unavailable.missed(HOST, LEAST)
    assert (back.error, back.seconds) == ("", 1)
    assert not back.missed(HOST, LEAST)


async def test_the_reception_lasts_over_failed_attempts_and_names_the_server_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nats = Nats(monkeypatch)
    found: list[Reception] = [nats.heartbeats.reception]

    def fails(found_by: Listened) -> Any:
        async def visit(_take: Any, _enough: Any) -> Listened:
            nats.time += 10
            found.append(nats.heartbeats.reception)
            return found_by

        return visit

    async def receives(take: Callable[[str, bytes], None], enough: Callable[[], bool]) -> Listened:
        take(SUBJECT, PAYLOAD)  # before the subscription is confirmed
        enough()
        take(SUBJECT, PAYLOAD)
        nats.time += 100
        found.append(nats.heartbeats.reception)
        return Listened(100, error="after 100 s: connection lost")

    refused = Listened(error="permissions violation", refused=True)
    nats.visits += [fails(Listened(error="connection refused")), fails(Listened(error="other")), receives]
    nats.visits += [fails(refused), fails(refused)]
    await nats.run()
    states = [(item.state, item.seconds, item.count) for item in found]
    assert states == [
        (ReceptionState.CONNECTING, 0, 0),
        (ReceptionState.CONNECTING, 10, 0),
        (ReceptionState.LOST, 10, 0),
        (ReceptionState.RECEIVING, 100, 2),
        (ReceptionState.LOST, 10, 0),
        (ReceptionState.DENIED, 10, 0),
    ]
    assert [item.error for item in found][2:] == [
        "connection refused",
        "",
        "after 100 s: connection lost",
        refused.error,
    ]
    assert {item.server for item in found[1:]} == {"nats://user:***@nats:4222"}


async def test_after_dropped_messages_a_missing_heartbeat_proves_nothing_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nats = Nats(monkeypatch)
    found: list[HostMessages] = []

    async def visit(take: Callable[[str, bytes], None], enough: Callable[[], bool]) -> Listened:
        enough()
        nats.time += 100
        take(f"runtime.operator.heartbeat.{'x' * 1000}", PAYLOAD)
        found.append(nats.messages())
        nats.time += WINDOW
        found.append(nats.messages())
        return Listened(1)

    nats.visits.append(visit)
    await nats.run()
    assert [item.missed(HOST, LEAST) for item in found] == [False, True]


async def test_a_lost_connection_is_made_again_and_nothing_is_published() -> None:
    beat = f"MSG {SUBJECT} 1 {len(PAYLOAD)}\r\n".encode() + PAYLOAD + b"\r\n"
    server = Server(beat, hangs_up=True)
    timings = HeartbeatTimings(
        first=0.01, most=0.01, listen=ListenTimings(listen=math.inf, look=0.01, connect=1, goodbye=0.2)
    )
    async with serving(server) as address:
        heartbeats = Heartbeats(lambda: address, "test", timings)
        task = asyncio.create_task(heartbeats.run())
        try:
            await eventually(lambda: sum(line.startswith("CONNECT") for line in server.lines) >= 2)
            server.hangs_up, server.sent = False, beat
            await eventually(lambda: HOST in heartbeats.messages(NOW).hosts)
            assert heartbeats.messages(NOW).hosts[HOST].at == pytest.approx(NOW, abs=5)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    commands = [line.split(" ") for line in server.lines]
    assert {sent[1] for sent in commands if sent[0] == "SUB"} == {"runtime.operator.heartbeat.>"}
    assert not [sent for sent in commands if sent[0] in {"PUB", "HPUB"}]
