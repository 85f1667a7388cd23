"""`-w` of lists on a real API server and a real bus: rows for changes, Ctrl-C, a reader that ends."""

from __future__ import annotations

import asyncio
import http
import json
import os
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest

from support.suite.typed import bare_environment
from trellis import names
from trellis.events.subjects import STREAM_DEAD
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(120)]

NODES = "/api/v1/nodes"


@asynccontextmanager
async def watching(environment: dict[str, str], *arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trellis_cli", *arguments, env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_with(process: Process, word: str) -> str:
    """Return the next line with a word: other tests change other objects of the cluster."""
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if word in line:
            return line
    raise AssertionError(f"it ended before it printed {word}")


@pytest.fixture
def environment(cluster: ClusterInfo, namespace: str) -> dict[str, str]:
    return bare_environment(
        TRELLIS_KUBECONFIG=str(cluster.kubeconfig),
        TRELLIS_NAMESPACE=namespace,
        TRELLIS_INSTALLER_NAMESPACE=namespace,
    )


def create_node(api: Api, name: str) -> None:
    """Create a node that opts in."""
    metadata = {"name": name, "annotations": {names.ANNOTATION_OPT_IN: "true"}}
    created, answer = api.call("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    assert created == http.HTTPStatus.CREATED, answer


async def test_each_change_of_a_node_is_a_row_until_ctrl_c(environment: dict[str, str], cluster_api: Api) -> None:
    first, second = (f"watch-{secrets.token_hex(4)}" for _ in range(2))
    create_node(cluster_api, first)
    try:
        async with (
            watching(environment, "nodes", "-w") as table,
            watching(environment, "nodes", "--watch", "--output-watch-events", "-o", "json") as program,
        ):
            assert (await line_with(table, "NODE")).split()[0] == "NODE"
            assert (await line_with(table, first)).split()[1] == "true"
            assert json.loads(await line_with(program, first))["type"] == "ADDED"
            create_node(cluster_api, second)
            assert (await line_with(table, second)).split()[:2] == [second, "true"]
            assert json.loads(await line_with(program, second))["object"]["opt_in"] == "true"
            odd = {"metadata": {"annotations": {names.ANNOTATION_OPT_IN: "maybe"}}}
            cluster_api.call("PATCH", f"{NODES}/{second}", odd)
            assert (await line_with(table, second)).split()[1] == "invalid"
            changed = json.loads(await line_with(program, second))
            assert (changed["type"], changed["object"]["state"]) == ("MODIFIED", "InvalidAnnotation")
            cluster_api.call("DELETE", f"{NODES}/{second}")
            assert (await line_with(table, second)).split()[0] == second
            assert json.loads(await line_with(program, second))["type"] == "DELETED"
            for process in (table, program):
                process.send_signal(signal.SIGINT)
                _, errors = await process.communicate()
                assert (process.returncode, errors) == (130, b"")
    finally:
        for name in (first, second):
            cluster_api.call("DELETE", f"{NODES}/{name}")


async def test_a_reader_that_ends_ends_the_watch_quietly(environment: dict[str, str], cluster_api: Api) -> None:
    first, second = (f"watch-{secrets.token_hex(4)}" for _ in range(2))
    create_node(cluster_api, first)
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trellis_cli", "nodes", "-w", env=environment, stdout=writing, stderr=PIPE
    )
    os.close(writing)
    try:
        assert await asyncio.to_thread(os.read, reading, 4) == b"NODE"
        os.close(reading)
        create_node(cluster_api, second)
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (141, b"")
    finally:
        for name in (first, second):
            cluster_api.call("DELETE", f"{NODES}/{name}")
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_each_dead_letter_is_a_row(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name=STREAM_DEAD, subjects=["trellis.dead.>"])
        environment = bare_environment(TRELLIS_NATS_URL=server.url)
        async with watching(environment, "dead-letters", "list", "-w", "-o", "name") as process:
            for number in (1, 2):
                await client.jetstream().publish("trellis.dead.c1.provisioner.node.n", b"{}")
                assert (await line_with(process, "deadletter")).strip() == f"deadletter/{number}"
            process.send_signal(signal.SIGINT)
            _, errors = await process.communicate()
            assert (process.returncode, errors) == (130, b"")
        await client.close()
