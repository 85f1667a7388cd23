"""Two replicas of secrets_backend under load: what hosts see of it when one ends, or NATS does.

Hosts ask 16 at once, each with a fresh key, and open every answer; a request that is not answered fails the start of a
component.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.secrets import secrets_client
from support.secrets.secrets_client import SecretsClient
from support.secrets.secrets_conformance.world import TEXT, Ask
from support.secrets.secrets_server import Place, ServedBackend, Server, running_backend, until_served
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.nats import NatsServer

AT_ONCE = 16
SECONDS = 60.0


@dataclass
class Load:
    """Requests that are being sent, and what came of them once they were."""

    thread: threading.Thread
    done: dict[str, Any] = field(default_factory=dict)

    def result(self) -> dict[str, Any]:
        self.thread.join(SECONDS)
        assert self.done, "the load did not end"
        return self.done


@dataclass(frozen=True)
class Pair:
    """Two replicas, and the NATS of their lattice."""

    backend: ServedBackend
    lattice: NatsServer

    @contextlib.contextmanager
    def load(self, count: int, seconds: float = 10.0) -> Iterator[Load]:
        """Ask for many, by a client of its own, while the block runs."""
        world = self.backend.world
        plan = [(json.dumps(Ask().request(world)), TEXT)]
        with SecretsClient(self.lattice.url) as client:

            def run() -> None:
                key, subject = world.server_xkey, world.subject("get")
                load.done = client.load(subject, key, plan, at_once=AT_ONCE, count=count, seconds=seconds)

            load = Load(threading.Thread(target=run))
            load.thread.start()
            try:
                yield load
            finally:
                load.thread.join(SECONDS)


@pytest.fixture
def pair(cluster: ClusterInfo, tmp_path: Path) -> Iterator[Pair]:
    if (reason := secrets_client.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    name = f"secrets-{secrets.token_hex(4)}"
    with NatsServer(tmp_path / "lattice") as lattice, NatsServer(tmp_path / "bus") as bus:
        place = Place(cluster, bus, f"{name}-home", tmp_path)
        with running_backend(place, lattice, lattice_name=name, own=(f"{name}-own",), replicas=2) as backend:
            yield Pair(backend, lattice)


def _until_busy(servers: list[Server]) -> None:
    """Wait until all of them work off requests."""
    before = [server.processor_seconds() for server in servers]
    deadline = time.monotonic() + SECONDS
    while not all(server.processor_seconds() > was + 0.1 for server, was in zip(servers, before, strict=True)):
        assert time.monotonic() < deadline, "not all are busy"
        time.sleep(0.02)


def _until_idle(servers: list[Server]) -> None:
    """Wait until none of them has anything to do: all that is asked hangs elsewhere."""
    deadline = time.monotonic() + SECONDS
    while True:
        before = sum(server.processor_seconds() for server in servers)
        time.sleep(0.5)
        if sum(server.processor_seconds() for server in servers) - before <= 0.02 * len(servers):
            return
        assert time.monotonic() < deadline, "they are busy"


@contextlib.contextmanager
def _frozen(pid: int | None) -> Iterator[None]:
    """Stop a process for the time of a block."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.thorough
def test_two_replicas_have_one_key_and_both_answer(pair: Pair) -> None:
    assert {pair.backend.world.ask_key() for _ in range(50)} == {pair.backend.world.server_xkey}
    with pair.load(1_000) as load:
        _until_busy(pair.backend.servers)
        assert load.result()["wrong"] == {}


@pytest.mark.thorough
def test_no_request_is_lost_when_a_replica_is_stopped(pair: Pair) -> None:
    with pair.load(2_000) as load:
        _until_busy(pair.backend.servers)
        pair.backend.servers[0].end(signal.SIGTERM)
        assert load.result()["wrong"] == {}


@pytest.mark.thorough
def test_a_replica_that_is_killed_costs_what_it_had_in_hand(pair: Pair) -> None:
    with pair.load(2_000, seconds=3.0) as load:
        _until_busy(pair.backend.servers)
        pair.backend.servers[0].end(signal.SIGKILL)
        done = load.result()
    assert sum(done["wrong"].values()) <= AT_ONCE, done["wrong"]
    assert all("timed out" in reason for reason in done["wrong"]), done["wrong"]
    with pair.load(200) as load:
        assert load.result()["wrong"] == {}


@pytest.mark.thorough
def test_requests_to_a_frozen_replica_are_answered_when_it_resumes(pair: Pair) -> None:
    frozen, other = pair.backend.servers
    with pair.load(2_000) as load:
        _until_busy(pair.backend.servers)
        with _frozen(frozen.process.pid):
            _until_idle([other])
        assert load.result()["wrong"] == {}


@pytest.mark.thorough
def test_no_request_is_lost_while_nats_is_frozen_for_a_moment(pair: Pair) -> None:
    with pair.load(2_000) as load:
        _until_busy(pair.backend.servers)
        with _frozen(pair.lattice.pid):
            _until_idle(pair.backend.servers)
        assert load.result()["wrong"] == {}


@pytest.mark.thorough
def test_both_answer_again_when_nats_was_killed_and_came_back(pair: Pair) -> None:
    world = pair.backend.world
    pair.lattice.kill()
    pair.lattice.start()
    with SecretsClient(pair.lattice.url) as client:
        assert until_served(client, world.subject("server_xkey")) == world.server_xkey
    with pair.load(1_000) as load:
        _until_busy(pair.backend.servers)
        assert load.result()["wrong"] == {}
