"""`trellis demo`, run as a user runs it, in a state directory of its own."""

from __future__ import annotations

import asyncio
import http
import json
import os
import pty
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from support.console.viewers import Page, messages
from support.suite.demos import Machine
from trellis.names import ANNOTATION_OPT_IN, LABEL_PROVISIONED
from trellis.read_model.entities.composing import PARTS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nodes import create_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

SERVICES = ["trellis_cli", "run"]
FAULTY = "node-0003"
"""The node that fails in a demo of four nodes or more."""


def until_printed(demo: subprocess.Popen[str], words: str) -> None:
    """Read what a demo says until it says this; it fails, with the output, if the demo ends before."""
    assert demo.stderr is not None
    printed = ""
    for line in demo.stderr:
        printed += line
        if words in line:
            return
    pytest.fail(f"it ended without a word of {words!r}: {printed}")


def until_services_run(demo: subprocess.Popen[str], machine: Machine) -> None:
    """Wait until a demo has started the process of the services; it fails if the demo ends before."""
    while not any(process.cmdline()[-2:] == SERVICES for process in machine.processes()):
        assert demo.poll() is None
        time.sleep(0.05)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    if machine.clusters:
        machine.run("dev", "down", "--name", "demo")


def test_the_demo_shows_a_failure_its_reason_the_repair_and_a_trace_and_leaves_nothing(machine: Machine) -> None:
    status, out, err = machine.run("demo", "--nodes", "4")
    assert status == 0, err
    for node in ("node-0000", "node-0001", "node-0002", FAULTY):
        assert re.search(rf"^{node} +true +Ready +handler ", out, re.MULTILINE), out
    assert re.search(r"^4 \D+$", out, re.MULTILINE), out
    # The chapters in their order: the rollout, why the node failed, how it was repaired, its trace.
    chapters = [
        r"^\$ kubectl apply -f \S+/spin\.yaml$",
        r"^\$ trellis rollout status spin$",
        rf"^{FAULTY} +Failed +1 +HandlerMissing: ",
        rf"^\$ trellis explain node/{FAULTY}$",
        r"HandlerMissing",
        rf"^\$ kubectl annotate node {FAULTY} \S+-$",
        r"^\$ trellis rollout resume spin$",
        r"^\$ trellis nodes$",
        rf"^trace [0-9a-f]{{32}} of {FAULTY}",
    ]
    at = 0
    for chapter in chapters:
        found = re.compile(chapter, re.MULTILINE).search(out, at)
        assert found is not None, f"{chapter} is not after {out[:at]!r} in {out}"
        at = found.end()
    spans = [
        "provisioner +kubernetes CREATE jobs",
        "provisioner +publish provision.succeeded",
        "node-watcher +publish node.ready",
    ]
    tree = re.sub(r"[│├└]", " ", out)
    assert [text for text in spans if re.search(text, tree) is None] == [], out
    assert re.search(r"^4 \D+ [0-9.]+ s, \D+ 1 \D+$", out, re.MULTILINE), out
    assert "\x1b" not in out + err, "no cursor is moved where there is no terminal"
    assert re.search(rf"provision\.failed +{FAULTY} +provisioner", err), err
    assert re.search(rf"node\.ready +{FAULTY} +node_watcher", err), err
    machine.assert_clean()


def token_of(log_in: list[str], machine: Machine) -> str:
    """Run the command that the demo printed; what it makes stands in no file of the demo."""
    made = subprocess.run(log_in, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    assert made.count(".") == 2
    files = [path for path in machine.state.rglob("*") if path.is_file() and path.stat().st_size < 50_000_000]
    assert [path for path in files if path.name == "console.log"]
    assert not [path for path in files if made.encode() in path.read_bytes()]
    return made


async def shows_the_node(url: str, token: str) -> None:
    """Log in to the console and see the node that the demo provisioned; the account may read no Secret."""
    async with (
        aiohttp.ClientSession(base_url=url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
        browser.post("/api/session", json={"token": token}, headers={"Origin": url}) as entered,
    ):
        assert entered.status == http.HTTPStatus.NO_CONTENT, await entered.text()
        async with browser.get("/api/stream") as stream, asyncio.timeout(30):
            page, received = Page(), messages(stream)
            parts = {f"part/{name}" for name in PARTS}
            while not (parts <= page.entities.keys() and all(page.entities[part]["synced"] for part in parts)):
                page.take(await anext(received))
        assert page.entities["node/node-0000"]["health"] == "Healthy"
        assert [page.entities[part]["lacking"] for part in parts] == [[]] * len(parts), "it may see all there is"
        async with browser.get("/api/explain/node/node-0000") as reason:
            assert (await reason.json())["ok"] is True
        async with browser.get("/api/events?types=node.ready") as past:
            assert "node/node-0000" in [event["about"] for event in (await past.json())["events"]]


@pytest.mark.thorough
def test_a_kept_demo_runs_on_refuses_a_second_one_and_goes_with_dev_down(machine: Machine) -> None:
    status, out, err = machine.run("demo", "--nodes", "4", "--keep", "-o", "json")
    assert status == 0, err
    found = json.loads(out)
    assert (found["provisioned"], found["most_in_progress"]) == (4, 1)
    assert found["trace"][0]["depth"] == 0
    assert (found["failed"]["name"], found["failed"]["reason"]) == (FAULTY, "HandlerMissing")
    assert {node["verified"] for node in found["nodes"]} == {"handler"}
    statuses = {" ".join(command["command"][:2]): command["status"] for command in found["commands"]}
    assert statuses["trellis explain"] == 1, "a check failed"
    assert statuses["trellis nodes"] == 0
    kept = found["kept"]

    running = [process.cmdline()[-2:] for process in machine.processes()]
    assert SERVICES in running, "the services run on"
    assert ["run", "console"] in running, "a process apart"
    asyncio.run(shows_the_node(found["console"]["url"], token_of(found["console"]["log_in"], machine)))

    status, out, err = machine.run("demo")
    assert (status, out) == (1, "")
    assert "trellis dev down --name demo`" in err

    flags = ("--kubeconfig", kept["kubeconfig"], "--nats-url", kept["nats_url"])
    status, out, err = machine.run("status", *flags)
    assert status == 0, out + err

    assert machine.run("dev", "down", "--name", "demo")[0] == 0
    machine.assert_clean()


@pytest.mark.jaeger
@pytest.mark.thorough
def test_commands_printed_by_a_preserved_demo_work_in_another_shell(machine: Machine) -> None:
    status, out, err = machine.run("demo", "--nodes", "4", "--keep", "--jaeger")
    assert status == 0, err
    lines = [line.strip() for line in out.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    begin = next(number for number, line in enumerate(lines) if line.startswith("export "))
    commands = lines[begin:]
    words = {" ".join(command.split()[:2]) for command in commands}
    assert {"trellis nodes", "trellis trace", "kubectl apply", "trellis rollout", "trellis dev"} <= words
    assert re.search(r"^Trace of \S+: http://127\.0\.0\.1:\d+/traces?[/?]\S+$", out, re.MULTILINE), out
    own = machine.environment | {"PATH": "/usr/bin:/bin"}
    script = "set -eux\n" + "\n".join(commands)
    ran = subprocess.run(["bash", "-c", script], env=own, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^spin .*Complete", re.sub(r"^ *[0-9.]+ s  ", "", ran.stdout, flags=re.MULTILINE), re.MULTILINE)
    assert not re.search(r"^(Note|Warning): .*TRELLIS_", ran.stderr, re.MULTILINE), ran.stderr
    machine.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.thorough
def test_an_interrupted_demo_leaves_nothing(machine: Machine, number: signal.Signals) -> None:
    demo = machine.start("demo", "--nodes", "3")
    until_services_run(demo, machine)
    demo.send_signal(number)
    out, err = demo.communicate(timeout=60)
    assert (demo.returncode, out) == (128 + number, "")
    assert "interrupted" in err
    assert "Traceback" not in err
    machine.assert_clean()


@pytest.mark.thorough
def test_services_that_die_end_the_demo_with_the_place_of_their_log(machine: Machine) -> None:
    demo = machine.start("demo", "--nodes", "40")
    until_printed(demo, " 40 nodes;")
    for process in machine.processes():
        if process.cmdline()[-2:] == SERVICES:
            process.kill()
    out, err = demo.communicate(timeout=60)
    assert (demo.returncode, out) == (1, "")
    log = re.search(rf"{re.escape(str(machine.state))}\S+\.log", err)
    assert log is not None, err
    assert "leading" in Path(log[0]).read_text(encoding="utf-8")
    machine.assert_clean()


@dataclass(frozen=True)
class Own:
    """A node in a cluster that is not the demo's, and the settings of its user."""

    api: Api
    node: str
    environment: dict[str, str]

    @property
    def opted_in(self) -> bool:
        _, node = self.api.call("GET", f"/api/v1/nodes/{self.node}")
        return ANNOTATION_OPT_IN in node["metadata"].get("annotations", {})


@pytest.fixture
def own(cluster: ClusterInfo, cluster_api: Api, namespace: str) -> Iterator[Own]:
    node = f"own-{secrets.token_hex(4)}"
    create_nodes(cluster_api, [node])
    environment = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "TRELLIS_NAMESPACE": namespace,
        "TRELLIS_CLAIM_NAMESPACE": namespace,
        "TRELLIS_INSTALLER_NAMESPACE": namespace,
        "TRELLIS_INSTALLER_IMAGE": "example.invalid/installer:1",
    }
    yield Own(cluster_api, node, environment)
    cluster_api.call("DELETE", f"/api/v1/nodes/{node}")


@pytest.mark.thorough
def test_use_of_the_users_cluster_is_confirmed_and_a_no_changes_nothing(machine: Machine, own: Own) -> None:
    ours, theirs = pty.openpty()
    try:
        demo = machine.start("demo", "--use-current-context", "--node", own.node, stdin=theirs, **own.environment)
        os.write(ours, b"n\n")
        out, err = demo.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (demo.returncode, out) == (1, "")
    for named in ("trellis-tmp-", "https://127.0.0.1", own.node, "privileged", "example.invalid/installer:1"):
        assert named in err
    assert not own.opted_in


@pytest.mark.thorough
def test_the_users_own_cluster_without_a_terminal_needs_yes(machine: Machine, own: Own) -> None:
    status, out, err = machine.run("demo", "--use-current-context", "--node", own.node, **own.environment)
    assert (status, out) == (2, "")
    assert "--yes" in err
    assert not own.opted_in


@pytest.mark.thorough
@pytest.mark.parametrize("nodes", [[], ["--node", "no-such-node"]], ids=["none named", "one that does not exist"])
def test_the_users_own_cluster_needs_a_node_that_exists(machine: Machine, own: Own, nodes: list[str]) -> None:
    status, _, err = machine.run("demo", "--use-current-context", "--yes", *nodes, **own.environment)
    assert status == 2
    assert own.node in err, "the nodes there are, are named"


@pytest.mark.thorough
def test_a_node_of_the_users_own_cluster_is_provisioned_and_nothing_stays_but_that(machine: Machine, own: Own) -> None:
    status, out, err = machine.run("demo", "--use-current-context", "--node", own.node, "--yes", **own.environment)
    assert status == 0, err
    assert re.search(rf"^{own.node} +true +Ready ", out, re.MULTILINE), out
    _, node = own.api.call("GET", f"/api/v1/nodes/{own.node}")
    assert node["metadata"]["labels"][LABEL_PROVISIONED] == own.node
    machine.assert_clean()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "a"], "--use-current-context"),
        (["--use-current-context", "--keep"], "--keep"),
        (["--jaeger"], "--keep"),
        (["--use-current-context", "--node", "a", "--yes", "--real-node"], "--real-node"),
    ],
    ids=["a node of a local cluster", "keep a cluster of the user's", "Jaeger for a moment", "a real node elsewhere"],
)
def test_flags_that_make_no_sense_are_refused(machine: Machine, arguments: list[str], message: str) -> None:
    status, out, err = machine.run("demo", *arguments)
    assert (status, out) == (2, "")
    assert message in err
