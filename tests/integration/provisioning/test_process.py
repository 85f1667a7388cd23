"""`trellis run` as an operator meets it: settings, servers that are unavailable, health, metrics, the end."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from support.suite.service_process import free_port, get, get_status, lines, running, until_status
from trellis.bus.publish import availability
from trellis.runtime import service

pytestmark = pytest.mark.cluster


def pointed_elsewhere(kubeconfig: Path, target: Path, port: int) -> Path:
    """Write a copy of the kubeconfig whose server is at another port."""
    text = kubeconfig.read_text()
    server = next(line for line in text.splitlines() if "server:" in line).split("server:")[1].strip()
    target.write_text(text.replace(server, f"https://127.0.0.1:{port}"))
    return target


@pytest.mark.thorough
async def test_a_running_process_reports_its_health_and_counts_its_work(fleet: Fleet, tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "log"
    async with running(log, **fleet.environment(health_port=port)) as process:
        await fleet.both_listen()
        await until_status(port, "/readyz", 200)
        [name] = fleet.add("node")
        await fleet.all_provisioned([name])
        await fleet.quiet()
        assert (await get_status(port, "/livez"))[0] == 200
        _, metrics = await get_status(port, "/metrics")
        for line in (
            'trellis_leader{service="node_watcher"} 1.0',
            'trellis_leader{service="provisioner"} 1.0',
            'trellis_events_published_total{service="node_watcher",type="dev.trellis.node.opted_in.v1"} 1.0',
            'trellis_events_received_total{service="provisioner",type="dev.trellis.node.opted_in.v1"} 1.0',
        ):
            name_and_labels = line.rpartition(" ")[0]
            assert line in [found for found in metrics.splitlines() if found.startswith(name_and_labels)]
        assert 'trellis_watch_staleness_seconds{resource="nodes",service="provisioner",watch="nodes"}' in metrics
        assert "trellis_queue_depth" in metrics
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    created = next(line for line in lines(log) if {"node", "job", "attempt"} <= line.keys())
    assert len(created["trace_id"]) == 32
    assert created["service"] == "provisioner"


async def test_services_can_be_run_one_by_one(fleet: Fleet, tmp_path: Path) -> None:
    [name] = fleet.add("node")
    async with (
        running(tmp_path / "watcher", "node-watcher", **fleet.environment()),
        running(tmp_path / "provisioner", "provisioner", **fleet.environment()),
    ):
        await fleet.all_provisioned([name], seconds=60)


def requested_from_kubernetes(port: int) -> float:
    """Return how many requests to the API server a process has counted, of any outcome."""
    metrics = get(port, "/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in metrics if line.startswith("trellis_kube_requests_total{"))


async def test_an_api_server_that_is_unavailable_is_one_warning_and_patience(fleet: Fleet, tmp_path: Path) -> None:
    port, nobody = free_port(), free_port()
    elsewhere = pointed_elsewhere(Path(fleet.info.kubeconfig), tmp_path / "kubeconfig", nobody)
    log = tmp_path / "log"
    environment = fleet.environment(health_port=port, kubeconfig=elsewhere)
    async with running(log, "provisioner", **environment) as process:
        body = await until_status(port, "/readyz", 503)
        assert "kubernetes" in body
        await eventually(lambda: [line for line in lines(log) if line["level"] == "warning"], "a warning")
        before = requested_from_kubernetes(port)
        await eventually(lambda: requested_from_kubernetes(port) >= before + 3, "three more tries")
        warnings = [line for line in lines(log) if line["level"] == "warning"]
        assert len(warnings) == 1
        assert warnings[0]["server"] == f"https://127.0.0.1:{nobody}"
        assert (await get_status(port, "/livez"))[0] == 200
        assert process.returncode is None


def warnings_of(log: Path, logger: str) -> list[dict[str, Any]]:
    """Return the warnings of a module."""
    return [line for line in lines(log) if (line["logger"], line["level"]) == (logger, "warning")]


@pytest.mark.thorough
async def test_a_bus_that_is_unavailable_is_one_warning_and_not_ready(fleet: Fleet, tmp_path: Path) -> None:
    port, nobody = free_port(), free_port()
    log = tmp_path / "log"
    environment = fleet.environment(health_port=port, nats_url=f"nats://someone:s3cret@127.0.0.1:{nobody}")
    async with running(log, "node-watcher", **environment):
        await until_status(port, "/readyz", 503)
        await eventually(lambda: warnings_of(log, service.__name__), "work begins without the bus")
        _, body = await get_status(port, "/readyz")
        assert "bus" in body
        unavailable = warnings_of(log, availability.__name__)
        assert len(unavailable) == 1
        assert f"127.0.0.1:{nobody}" in unavailable[0]["url"]
        assert "s3cret" not in log.read_text() + body


async def test_a_wrong_setting_is_one_line_and_exit_status_2(fleet: Fleet) -> None:
    environment = {**os.environ, **fleet.environment(), "TRELLIS_MAX_UNAVAILABLE": "many"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trellis_cli", "run", env=environment, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 2
    assert output == b""
    assert errors.startswith(b"Error: TRELLIS_MAX_UNAVAILABLE: ")
    assert errors.count(b"\n") == 1
    assert b"'many'" in errors
