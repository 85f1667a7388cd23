"""`trellis nodes`, `trellis status` and `trellis events tail`, run as a user runs them."""

from __future__ import annotations

import asyncio
import http
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from provisioner.domain.resources import Installer, Task, make_installer_job
from support.suite.typed import Done, typed
from trellis import names
from trellis.bus.bus import Bus
from trellis.events.node import NodeGone
from trellis.kube.lease import new_lease, with_holder
from trellis.limits.breaker import Deletion, Limits, State, decide
from trellis.limits.breaker_record import make_breakers
from trellis.provisioning.ledger import Entry, Ledger, make_ledger
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.views import KWASM, NodeView, Target
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

DIGEST = "d1d1d1d1d1d1d1d1"
NOWHERE = "nats://127.0.0.1:1"
INSTALLER = Installer("example.invalid/none", "example.invalid/own", "Never", None, "", 60, 0, "1m", "1Mi", "default")


@dataclass(frozen=True)
class World:
    """One namespace of the shared cluster, and nodes that no other test knows."""

    api: Api
    namespace: str
    environment: dict[str, str]
    prefix: str

    def post(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        status, answer = self.api.call("POST", path, manifest)
        assert status == http.HTTPStatus.CREATED, answer
        return answer

    def node(self, name: str, annotation: str | None = None) -> NodeView:
        annotations = {} if annotation is None else {names.ANNOTATION_OPT_IN: annotation}
        metadata = {"name": f"{self.prefix}-{name}", "annotations": annotations}
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        return view_node(self.post("/api/v1/nodes", manifest))

    def job(self, node: NodeView) -> None:
        manifest = make_installer_job(INSTALLER, node, Task(Target(((KWASM, DIGEST),))), 1, None)
        manifest["metadata"]["namespace"] = self.namespace
        manifest["spec"]["suspend"] = True  # no pod: nothing runs on these nodes
        self.post(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", manifest)

    def ledger(self, ledger: Ledger) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        self.post(path, make_ledger(self.namespace, ledger, None))

    def lease(self, service: str) -> None:
        lease = new_lease(names.LEASE_PREFIX + service, self.namespace)
        held = with_holder(lease, identity=f"{service}-7", duration=600, now=datetime.now(UTC))
        self.post(f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases", held)

    def run(self, *arguments: str, **environment: str) -> Done:
        return typed(self.environment | environment, *arguments)


@pytest.fixture
def world(cluster: ClusterInfo, cluster_api: Api, namespace: str) -> Iterator[World]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBECONFIG"))}
    environment |= {
        "TRELLIS_KUBECONFIG": str(cluster.kubeconfig),
        "TRELLIS_NAMESPACE": namespace,
        "TRELLIS_CLAIM_NAMESPACE": namespace,
        "TRELLIS_INSTALLER_NAMESPACE": namespace,
        "TRELLIS_NATS_URL": NOWHERE,
    }
    world = World(cluster_api, namespace, environment, f"cli-{secrets.token_hex(4)}")
    yield world
    for name in ("idle", "busy", "waiting", "odd"):
        cluster_api.call("DELETE", f"/api/v1/nodes/{world.prefix}-{name}")


@pytest.fixture
def busy_world(world: World) -> World:
    world.node("idle")
    world.node("waiting", "true")
    world.node("odd", "maybe")
    busy = world.node("busy", "true")
    world.job(busy)
    world.ledger(Ledger({busy.uid: Entry(DIGEST, 1, 1000)}))
    return world


def test_nodes_shows_where_each_node_stands(busy_world: World) -> None:
    done = busy_world.run("nodes", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    states = {node["name"].removeprefix(f"{busy_world.prefix}-"): node for node in json.loads(done.stdout)["nodes"]}
    assert "idle" not in states
    assert states["waiting"]["state"] == "Waiting"
    assert states["odd"]["state"] == "InvalidAnnotation"
    assert (states["busy"]["state"], states["busy"]["digest"], states["busy"]["attempt"]) == ("Provisioning", DIGEST, 1)


def test_nodes_prints_a_table_and_every_node_if_asked(busy_world: World) -> None:
    done = busy_world.run("nodes", "--all")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.split()}
    assert lines[f"{busy_world.prefix}-idle"][1:3] == ["false", "NotOptedIn"]
    assert lines[f"{busy_world.prefix}-busy"][1:3] == ["true", "Provisioning"]


def test_a_cluster_that_does_not_answer_is_one_line_and_no_traceback(world: World, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    text = Path(world.environment["TRELLIS_KUBECONFIG"]).read_text(encoding="utf-8")
    config.write_text(
        "\n".join("    server: https://127.0.0.1:1" if "server:" in line else line for line in text.splitlines()),
        encoding="utf-8",
    )
    done = world.run("nodes", "--kubeconfig", str(config))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: https://127.0.0.1:1 ")
    assert "127.0.0.1:1" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_wrong_setting_ends_with_2(world: World) -> None:
    done = world.run("nodes", "--kubeconfig", "/does/not/exist")
    assert done.returncode == 2
    assert "/does/not/exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_status_shows_what_works_beside_what_does_not(busy_world: World) -> None:
    busy_world.lease("node-watcher")
    done = busy_world.run("status", "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert found["kubernetes"]["ok"]
    assert found["kubernetes"]["version"].startswith("v1.")
    services = {service["name"]: service for service in found["services"]}
    assert set(services) == {"installation", "node-watcher", "provisioner"}
    watcher, provisioner = services["node-watcher"], services["provisioner"]
    assert (watcher["ok"], watcher["holder"]) == (True, "node-watcher-7")
    assert provisioner["ok"] is False
    assert "`trellis run provisioner`" in provisioner["problem"]
    assert found["rollout"]["in_progress"] == 1
    assert found["bus"]["streams"] is None
    assert NOWHERE in found["bus"]["problem"]


async def test_status_is_fine_when_everything_is(world: World, tmp_path: Path) -> None:
    world.lease("node-watcher")
    world.lease("provisioner")
    with NatsServer(tmp_path / "nats") as own:  # of its own: other tests leave dead letters
        bus = Bus(
            own.url,
            cluster="cli",
            cluster_uid="uid",
            service="node_watcher",
            telemetry=setup("test"),
            health=Health("test"),
        )
        await bus.connect()  # makes the streams
        await bus.close()
        done = await asyncio.to_thread(world.run, "status", "-o", "json", TRELLIS_NATS_URL=own.url)
    found = json.loads(done.stdout)
    services = {service["name"]: service for service in found["services"]}
    own_parts = [*services.values(), *(found[name] for name in ("kubernetes", "rollout", "circuit_breakers", "bus"))]
    assert all(part["ok"] is True and not part["problem"] for part in own_parts), own_parts
    assert services["provisioner"]["holder"] == "provisioner-7"
    assert "TRELLIS_EVENTS" in {stream["name"] for stream in found["bus"]["streams"]}
    # Host groups and controllers of other tests are in this cluster, too.
    others = [
        found[name]["ok"]
        for name in ("hosts", "applications", "reflected_services", "secrets", "controllers", "wasm_pods")
    ]
    assert found["ok"] is all(others)
    assert (done.returncode == 0) is found["ok"], done.stdout


def held_world(world: World) -> None:
    held = [Deletion("nodes", f"node-{n}", f"uid-{n}", "it", "v1", "Node") for n in range(30)]
    state, _ = decide(State(), held, 40, time.time(), Limits())
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    world.post(path, make_breakers("node_watcher", world.namespace, {"nodes": state}, None))


def breakers(world: World) -> tuple[int, dict[str, dict[str, Any]]]:
    done = world.run("circuit-breaker", "status", "-o", "json")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    return done.returncode, {row["service"]: row for row in found["circuit_breakers"]}


def closed_now(world: World, *arguments: str) -> list[dict[str, Any]]:
    """Close breakers, and return the rows of those that were open."""
    done = world.run("circuit-breaker", "close", *arguments, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["closed"]
    return rows


def test_no_record_means_every_circuit_breaker_is_closed_and_there_is_nothing_to_close(world: World) -> None:
    code, rows = breakers(world)
    assert code == 0
    assert {(row["service"], row["kind"], row["state"]) for row in rows.values()} == {
        ("application-manager", "applications", "Closed"),
        ("host-manager", "hosts", "Closed"),
        ("node-watcher", "nodes", "Closed"),
        ("provisioner", "jobs", "Closed"),
        ("service-reflector", "services", "Closed"),
    }
    assert closed_now(world, "node-watcher") == []


def test_an_open_circuit_breaker_is_shown_closed_once_and_signed(world: World) -> None:
    held_world(world)
    code, rows = breakers(world)
    row = rows["node-watcher"]
    assert (code, row["state"], row["paused"]) == (1, "Open", 25)
    assert "5 of 40 nodes" in row["reason"]
    table = world.run("circuit-breaker", "status").stdout
    assert "trellis circuit-breaker close node-watcher nodes" in table
    status = json.loads(world.run("status", "-o", "json").stdout)
    assert [(item["service"], item["paused"]) for item in status["circuit_breakers"]["open"]] == [("node-watcher", 25)]
    for named in ("node-watcher", "25 ", " nodes "):
        assert named in status["circuit_breakers"]["problem"]
    done = world.run("circuit-breaker", "close", "node-watcher", "nodes")
    assert (done.returncode, done.stderr) == (0, "")
    for named in ("node-watcher nodes", "admin", "25"):
        assert named in done.stdout
    code, rows = breakers(world)
    row = rows["node-watcher"]
    assert (code, row["state"], row["closed"]["by"], row["permitted"]["deletions"]) == (0, "Closed", "admin", "Paused")
    assert closed_now(world, "node-watcher") == []


def test_a_planned_mass_can_be_announced(world: World) -> None:
    done = world.run("circuit-breaker", "close", "provisioner", "--for", "15m", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    [row] = json.loads(done.stdout)["closed"]
    assert (row["kind"], row["permitted"]["deletions"]) == ("jobs", "Everything")


def test_a_record_that_makes_no_sense_is_shown_and_can_be_closed(world: World) -> None:
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    manifest = make_breakers("node_watcher", world.namespace, {}, None)
    world.post(path, manifest | {"data": {"nodes": "{oops"}})
    code, rows = breakers(world)
    assert (code, rows["node-watcher"]["state"]) == (1, "Unreadable")
    assert world.run("circuit-breaker", "close", "node-watcher").returncode == 0
    assert breakers(world)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (("nobody",), ("SERVICE", "'nobody'", "node-watcher, provisioner")),
        (("node-watcher", "jobs"), ("KIND", "'jobs'", ": nodes")),
        (("node-watcher", "--for", "soon"), ("--for", "'soon'")),
        (("node-watcher", "--for", "2d"), ("--for", "1d")),
    ],
)
def test_a_wrong_argument_of_close_is_one_line_with_the_accepted_ones(
    world: World, arguments: tuple[str, ...], needs: tuple[str, ...]
) -> None:
    done = world.run("circuit-breaker", "close", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    for named in needs:
        assert named in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
async def bus(nats_server: NatsServer) -> Any:
    bus = Bus(
        nats_server.url,
        cluster="cli",
        cluster_uid="uid",
        service="node_watcher",
        telemetry=setup("test"),
        health=Health("test"),
    )
    await bus.connect()
    yield bus
    await bus.close()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_tail_shows_old_events_then_new_ones_and_succeeds_on_ctrl_c(
    world: World, nats_server: NatsServer, bus: Bus, number: signal.Signals
) -> None:
    first, second = (NodeGone(name=f"{world.prefix}-{n}", uid="u", resource_version="1") for n in "ab")
    await bus.publish(first, dedup=f"{world.prefix}-1")
    tail = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "trellis_cli", "events", "tail", "--cluster", "cli", "--last", "1", "-o", "json"),
        env=world.environment | {"TRELLIS_NATS_URL": nats_server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert tail.stdout is not None
        assert json.loads(await tail.stdout.readline())["data"]["name"] == first.name
        await bus.publish(second, dedup=f"{world.prefix}-2")
        assert json.loads(await tail.stdout.readline())["data"]["name"] == second.name
        tail.send_signal(number)
        out, err = await tail.communicate()
        assert (tail.returncode, out, err) == (0, b"", b"")
    finally:
        if tail.returncode is None:
            tail.kill()
            await tail.wait()


@pytest.mark.thorough
def test_tail_without_a_bus_is_one_line(world: World) -> None:
    done = world.run("events", "tail")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: no NATS at {NOWHERE}")
    assert done.stderr.count("\n") == 1
