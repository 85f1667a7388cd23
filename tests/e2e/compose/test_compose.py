"""docker-compose.yml on a real Docker engine: started, used, cut off in its middle, and removed.

k3s is a stand-in (see ``support.engine.images``): a real control plane with one simulated node, on which no container
runs. All other images are the real programs, and those of Trellis are built by the engine from their Dockerfiles.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.engine.engine import Engine, engine
from support.engine.images import fill_context, import_images
from trellis import names
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines

ROOT = Path(__file__).parents[3]
HOW = How(Lines(), threading.Event())
PROJECT = "trellis"
SECONDS = 180.0


@dataclass(frozen=True)
class Started:
    """The project in an engine."""

    engine: Engine
    context: Path

    def compose(self, *arguments: str, stdin: Path | None = None) -> str:
        file = ("--project-name", PROJECT, "--project-directory", str(self.context))
        return self.engine.run(
            "docker-compose", *file, "--file", self.context / "docker-compose.yml", *arguments, stdin=stdin
        )

    def kubectl(self, *arguments: str) -> str:
        return self.compose("exec", "-T", "k3s", "kubectl", *arguments)

    def node(self) -> dict[str, Any]:
        """Return the node; the name of its container is that of the node."""
        [node] = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        return dict(node)

    def state(self, service: str) -> tuple[str, str]:
        """Return the time of the start of a container, and its health."""
        name = self.compose("ps", "--quiet", service).strip()
        shown = self.engine.run("docker", "inspect", "--format", "{{.State.StartedAt}} {{.State.Health.Status}}", name)
        at, health = shown.split()
        return at, health

    def health(self, service: str) -> str:
        return self.state(service)[1]

    def is_again(self, service: str, former: str) -> bool:
        """Return whether a container was started after a former start, and is healthy."""
        at, health = self.state(service)
        return at != former and health == "healthy"


def eventually(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(
            AssertionError, ValueError
        ):  # the engine refuses commands in a container that restarts
            if holds():
                return
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("compose")
    context = folder / PROJECT
    fill_context(ROOT, context, HOW)
    services = yaml.safe_load((context / "docker-compose.yml").read_text())["services"]
    (folder / "engine").mkdir()
    with engine(folder / "engine", HOW) as made:
        import_images(made, services, HOW)
        project = Started(made, context)
        project.compose("up", "--build", "--detach")
        with kubelet(project, folder):
            yield project


@contextlib.contextmanager
def kubelet(project: Started, folder: Path) -> Iterator[None]:
    """Run what stands in for the kubelet of the node: it lists the handlers that installers would have left."""
    config = folder / "kubeconfig"
    config.write_text(project.compose("exec", "-T", "k3s", "cat", "/output/kubeconfig.yaml"))
    command = project.engine.command(sys.executable, "-m", "trellis_dev.demo.kubelets")
    variables = os.environ | {"TRELLIS_KUBECONFIG": str(config), "TRELLIS_NAMESPACE": "trellis-system"}
    with subprocess.Popen(command, env=variables, cwd=ROOT) as process:
        try:
            yield
        finally:
            process.terminate()


def annotate(started: Started, change: str) -> None:
    started.kubectl("annotate", "--overwrite", "node", "--all", f"{names.ANNOTATION_OPT_IN}{change}")


def labelled(started: Started) -> bool:
    return started.node()["metadata"]["labels"].get("wasi") == names.SHIM_PROVISIONED


def test_it_starts_and_an_annotated_node_is_verified(started: Started, tmp_path: Path) -> None:
    eventually(lambda: started.health("trellis") == "healthy", "the services are ready")
    image = tmp_path / "installer.tar"
    started.engine.run("docker", "save", "--output", image, "trellis.local/node-installer:1")
    started.compose("exec", "-T", "k3s", "ctr", "images", "import", "-", stdin=image)
    annotate(started, "=true")
    started.compose("exec", "-T", "trellis", "trellis", "rollout", "status", "wasi", "--watch")
    assert labelled(started)


def test_jaeger_has_the_trace(started: Started) -> None:
    url = "http://127.0.0.1:16686/api/traces?service=trellis-provisioner&limit=200"

    def spans() -> set[str]:
        found = json.loads(started.compose("exec", "-T", "jaeger", "wget", "-q", "-O", "-", url))["data"]
        return {trace["processes"][span["processID"]]["serviceName"] for trace in found for span in trace["spans"]}

    eventually(lambda: spans() >= {"trellis-node-watcher", "trellis-provisioner"}, "a trace has spans of both services")


@pytest.mark.parametrize("service", ["k3s", "nats", "trellis"])
def test_a_killed_service_restarts_and_continues_its_work(started: Started, service: str) -> None:
    before = labelled(started)
    at, _ = started.state(service)
    with contextlib.suppress(AssertionError):  # the command may end with its container
        started.compose("exec", "-T", service, *killing(service))
    eventually(lambda: started.is_again(service, at), f"{service} is healthy again")
    annotate(started, "-" if before else "=true")
    eventually(lambda: labelled(started) is not before, "the change of the annotation is carried out")


def killing(service: str) -> list[str]:
    """Return the command that ends the first process of a container: as the installer ends k3s."""
    if service == "trellis":
        return ["python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)"]
    return ["sh", "-c", "kill 1"]


def test_it_starts_again_after_a_restart_of_the_containers(started: Started) -> None:
    at, _ = started.state("trellis")
    started.compose("restart")
    eventually(lambda: started.is_again("trellis", at), "the services are ready")
    before = labelled(started)
    annotate(started, "-" if before else "=true")
    eventually(lambda: labelled(started) is not before, "the change of the annotation is carried out")


def test_nothing_is_left(started: Started) -> None:
    started.compose("down", "--volumes")
    assert started.engine.run("docker", "ps", "--all", "--quiet") == ""
    assert PROJECT not in started.engine.run("docker", "volume", "ls", "--quiet")
    assert PROJECT not in started.engine.run("docker", "network", "ls", "--format", "{{.Name}}")
