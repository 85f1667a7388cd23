"""SIGTERM: work in progress ends or is given back, the lease is released, and it ends although parts hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from support.suite import stubborn_process
from support.suite.service_process import lines, running
from trellis import names
from trellis.kube import client
from trellis.runtime import shutdown as stopping
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

GRACE = 10.0
MACHINE_SECONDS = 5.0
"""What a busy machine may take to start a thread, end an interpreter and tell the test of it."""


def lease_of(fleet: Fleet, service: str) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{fleet.system}/leases/{names.LEASE_PREFIX}{service}"
    _, lease = fleet.api.call("GET", path)
    return dict(lease.get("spec") or {})


@contextlib.contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """Stop a server for the time of a block: its connections stay open and it sends nothing."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def ends(process: Process, number: signal.Signals = signal.SIGTERM) -> int:
    """Ask the process to stop and return its exit status; it must end within the grace period."""
    process.send_signal(number)
    return await asyncio.wait_for(process.wait(), GRACE + MACHINE_SECONDS)


async def until_logged(log: Path, event: str) -> None:
    await eventually(lambda: event in log.read_text(), event, seconds=60)


def warned(log: Path, logger: str) -> bool:
    """Return whether a module has logged a warning."""
    found = lines(log) if log.exists() else []
    return any((line["logger"], line["level"]) == (logger, "warning") for line in found)


@contextlib.asynccontextmanager
async def stubborn(fleet: Fleet, log: Path, mode: str, **changes: object) -> AsyncIterator[Process]:
    """Run the service that never returns, and wait until its run has started."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(stubborn_process.__file__), mode,
            env={**os.environ, **fleet.environment(shutdown_grace_period=GRACE, **changes)},
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        await until_logged(log, stubborn_process.BEGUN)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.thorough
async def test_under_load_it_succeeds_releases_its_leases_and_the_next_one_finishes(
    fleet: Fleet, tmp_path: Path
) -> None:
    nodes = fleet.add(*["node"] * 60)
    log = tmp_path / "log"
    environment = fleet.environment(max_unavailable="30%", shutdown_grace_period=GRACE)
    for term, wanted in enumerate((10, 30), start=1):
        async with running(log, **environment) as process:
            # Before that nothing is begun, and the signal ends the interpreter as it ends any program.
            await eventually(
                lambda n=term: log.read_text().count("serving /readyz and /metrics") == n,
                "signals are heard",
                seconds=60,
            )
            await eventually(lambda n=wanted: sum(map(fleet.provisioned, nodes)) >= n, f"{wanted} nodes", seconds=60)
            assert await ends(process) == 0
        for service in ("node-watcher", "provisioner"):
            assert not lease_of(fleet, service).get("holderIdentity")
    async with running(log, **environment):
        await fleet.all_provisioned(nodes, seconds=90)
        await fleet.quiet()
        events = await eventually_all_ready(fleet, nodes)
    assert "left behind" not in log.read_text()
    ready = [event.key[0] for event in events if event.event_name == "ready"]
    assert sorted(set(ready)) == sorted(nodes)


async def eventually_all_ready(fleet: Fleet, nodes: list[str]) -> list[Any]:
    """Return all events once every node is published as ready."""
    async with asyncio.timeout(60):
        while True:
            events = await fleet.events_until_now()
            if {event.key[0] for event in events if event.event_name == "ready"} == set(nodes):
                return events


@pytest.mark.thorough
async def test_the_messages_at_the_end_match_the_state(fleet: Fleet, tmp_path: Path) -> None:
    """An event of readiness is published only after the label is written, also by a process that is ending."""
    nodes = fleet.add(*["node"] * 40)
    async with running(
        tmp_path / "log", **fleet.environment(max_unavailable="100%", shutdown_grace_period=GRACE)
    ) as process:
        await eventually(lambda: any(map(fleet.provisioned, nodes)), "the first node", seconds=60)
        assert await ends(process) == 0
    labelled = {name for name in nodes if fleet.provisioned(name)}
    published_ready = {event.key[0] for event in await fleet.events_until_now() if event.event_name == "ready"}
    assert published_ready <= labelled


async def test_an_api_server_that_hangs_does_not_keep_it(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running(log, **fleet.environment(shutdown_grace_period=GRACE)) as process:
        await fleet.all_provisioned(fleet.add("node", "node"), seconds=60)
        fleet.add(*["node"] * 5)
        with frozen(fleet.api_server()):
            await asyncio.sleep(1)  # so that calls are under way
            assert await ends(process) == 0


@pytest.mark.thorough
async def test_an_api_server_that_hangs_from_the_start_does_not_keep_it(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with frozen(fleet.api_server()):
        # As the administrator: nobody makes an account for it at a server that is silent.
        async with running(
            log, forked=False, **fleet.environment(shutdown_grace_period=GRACE), PYTHONPATH=""
        ) as process:
            await eventually(lambda: warned(log, client.__name__), "Kubernetes does not answer", seconds=60)
            assert await ends(process) == 0


@pytest.mark.thorough
async def test_a_bus_that_hangs_does_not_keep_it(fleet: Fleet, nats_server: NatsServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = fleet.environment(shutdown_grace_period=GRACE, nats_url=nats_server.url)
    async with running(log, **environment) as process:
        await fleet.all_provisioned(fleet.add("node", "node"), seconds=60)
        with frozen(nats_server.pid):
            fleet.add(*["node"] * 5)
            await asyncio.sleep(1)  # so that facts are under way
            assert await ends(process) == 0
    for service in ("node-watcher", "provisioner"):
        assert not lease_of(fleet, service).get("holderIdentity"), "the bus has no say in the lease"


@pytest.mark.thorough
async def test_a_collector_that_hangs_does_not_keep_it(fleet: Fleet, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with running(
            tmp_path / "log", **fleet.environment(shutdown_grace_period=GRACE, otlp_endpoint=endpoint)
        ) as process:
            await fleet.all_provisioned(fleet.add("node", "node"), seconds=60)
            assert await ends(process) == 0
    assert not lease_of(fleet, "node-watcher").get("holderIdentity")


@pytest.mark.thorough
async def test_everything_that_hangs_at_once_does_not_keep_it(
    fleet: Fleet, nats_server: NatsServer, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {"otlp_endpoint": endpoint, "nats_url": nats_server.url}
        async with stubborn(fleet, tmp_path / "log", "ignores", **environment) as process:
            with frozen(nats_server.pid), frozen(fleet.api_server()):
                assert await ends(process) == 0


@pytest.mark.parametrize("mode", ["waits", "thread"])
async def test_a_run_that_can_be_cancelled_is_and_the_lease_released(fleet: Fleet, tmp_path: Path, mode: str) -> None:
    async with stubborn(fleet, tmp_path / "log", mode) as process:
        assert await ends(process) == 0
    assert not lease_of(fleet, "stubborn").get("holderIdentity")


async def test_a_run_that_never_returns_is_left_behind_and_so_is_the_lease(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with stubborn(fleet, log, "ignores") as process:
        assert await ends(process) == 0
    assert lease_of(fleet, "stubborn")["holderIdentity"], "something of the term went on: the lease must expire"
    [line] = [line for line in lines(log) if "keys" in line][:1]
    assert line["keys"] == ["key"]


async def test_a_run_that_blocks_the_event_loop_is_ended_when_time_is_up(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with stubborn(fleet, log, "blocks") as process:
        assert await ends(process) == 1
    assert [line["shutdown_grace_period"] for line in lines(log) if line["level"] == "error"] == [GRACE]


async def test_a_second_signal_ends_it_at_once_but_an_echo_does_not(fleet: Fleet, tmp_path: Path) -> None:
    async with stubborn(fleet, tmp_path / "log", "waits") as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), GRACE + MACHINE_SECONDS) == 0
    log = tmp_path / "again"
    async with stubborn(fleet, log, "ignores") as process:
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        await asyncio.sleep(1.5)
        assert await ends(process, signal.SIGINT) == 130
        assert time.monotonic() - began < GRACE / 2, "it was not its time that was up"
    assert warned(log, stopping.__name__)
