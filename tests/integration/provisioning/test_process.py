"""`trellis run` as an operator meets it: settings, servers that are away, health, metrics, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.fleet import Fleet, eventually

pytestmark = pytest.mark.cluster


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body, (0, "") while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


async def ask(port: int, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(get, port, path)


async def until_status(port: int, path: str, status: int) -> str:
    async with asyncio.timeout(40):
        while True:
            found, body = await ask(port, path)
            if found == status:
                return body
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def running(log: Path, *services: str, **environment: str) -> AsyncIterator[Process]:
    """Run `trellis run` with its log in a file."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trellis_bundle", "run", *services,
            env={**os.environ, "TRELLIS_LOG_FORMAT": "json", **environment}, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 40)


def pointed_elsewhere(kubeconfig: Path, target: Path, port: int) -> Path:
    """Write a copy of the kubeconfig whose server is at another port."""
    text = kubeconfig.read_text()
    server = next(line for line in text.splitlines() if "server:" in line).split("server:")[1].strip()
    target.write_text(text.replace(server, f"https://127.0.0.1:{port}"))
    return target


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_a_running_process_tells_its_health_and_counts_its_work(fleet: Fleet, tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "log"
    async with running(log, **fleet.environment(health_port=port)) as process:
        await fleet.both_listen()
        await until_status(port, "/readyz", 200)
        [name] = fleet.add("node")
        await fleet.all_provisioned([name])
        await fleet.quiet()
        assert (await ask(port, "/livez"))[0] == 200
        _, metrics = await ask(port, "/metrics")
        for line in (
            'trellis_leader{service="node_watcher"} 1.0',
            'trellis_leader{service="provisioner"} 1.0',
            'trellis_facts_published_total{service="node_watcher",type="dev.trellis.node.opted_in.v1"} 1.0',
            'trellis_facts_received_total{service="provisioner",type="dev.trellis.node.opted_in.v1"} 1.0',
        ):
            name_and_labels = line.rpartition(" ")[0]
            assert line in [found for found in metrics.splitlines() if found.startswith(name_and_labels)]
        assert 'trellis_watch_staleness_seconds{resource="nodes",service="provisioner"}' in metrics
        assert "trellis_queue_depth" in metrics
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    created = next(line for line in lines(log) if line["event"] == "installer job created")
    assert len(created["trace_id"]) == 32
    assert created["service"] == "provisioner"


async def test_services_can_be_run_one_by_one(fleet: Fleet, tmp_path: Path) -> None:
    [name] = fleet.add("node")
    async with (
        running(tmp_path / "watcher", "node-watcher", **fleet.environment()),
        running(tmp_path / "provisioner", "provisioner", **fleet.environment()),
    ):
        await fleet.all_provisioned([name])


async def test_an_api_server_that_is_away_is_one_warning_and_patience(fleet: Fleet, tmp_path: Path) -> None:
    port, nobody = free_port(), free_port()
    elsewhere = pointed_elsewhere(Path(fleet.info.kubeconfig), tmp_path / "kubeconfig", nobody)
    log = tmp_path / "log"
    environment = fleet.environment(health_port=port, kubeconfig=elsewhere)
    async with running(log, "provisioner", **environment) as process:
        body = await until_status(port, "/readyz", 503)
        assert "kubernetes" in body
        await eventually(lambda: [line for line in lines(log) if line["level"] == "warning"], "a warning")
        await asyncio.sleep(3)  # several tries later
        warnings = [line for line in lines(log) if line["level"] == "warning"]
        assert len(warnings) == 1
        assert warnings[0]["server"] == f"https://127.0.0.1:{nobody}"
        assert (await ask(port, "/livez"))[0] == 200
        assert process.returncode is None


async def test_a_bus_that_is_away_is_one_warning_and_not_ready(fleet: Fleet, tmp_path: Path) -> None:
    port, nobody = free_port(), free_port()
    log = tmp_path / "log"
    environment = fleet.environment(health_port=port, nats_url=f"nats://someone:s3cret@127.0.0.1:{nobody}")
    async with running(log, "node-watcher", **environment):
        await until_status(port, "/readyz", 503)
        await eventually(lambda: "deciding without the bus" in log.read_text(), "work begins without the bus")
        _, body = await ask(port, "/readyz")
        assert "bus" in body
        away = [line for line in lines(log) if line["event"].startswith("the bus is away")]
        assert len(away) == 1
        assert f"127.0.0.1:{nobody}" in away[0]["url"]
        assert "s3cret" not in log.read_text() + body


async def test_a_wrong_setting_is_one_line_and_exit_status_2(fleet: Fleet) -> None:
    environment = {**os.environ, **fleet.environment(), "TRELLIS_MAX_UNAVAILABLE": "many"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trellis_bundle", "run", env=environment, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 2
    assert output == b""
    assert errors.decode().strip() == (
        "TRELLIS_MAX_UNAVAILABLE: has 'many', needs a whole number or a percentage, e.g. 5 or 10%"
    )
