"""The whole of it on a real node: a Shim is applied, the node runs Wasm, rolls on, and is as it was before."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.installer_image import INSTALLER, installer_image
from support.installer_runs import NODE, InstallerJobs
from support.real_nodes import Kubectl, eventually, fingerprint, pod, wasm_pod
from trellis import names
from trellis.crds.kinds import KINDS, make_definition
from trellis.localcluster import ClusterInfo, debian, owned_cluster
from trellis.localcluster.building import How
from trellis.localcluster.node_images import architecture, hello_wasm_image
from trellis.localcluster.ociarchive import Image, write_image
from trellis.localcluster.progress import Lines
from trellis.localcluster.realnode_faults import load_image
from trellis.localcluster.wasmshim import hello_module, shim

SERVER = "trellis.local/shim-versions:1"
SHIM_PLACE = "opt/trellis/bin/containerd-shim-wasmi"
INSTALLERS = "trellis-installers"


@dataclass(frozen=True)
class World:
    """A cluster of one real node, the services at work, and a web server with the versions of a shim."""

    info: ClusterInfo
    kubectl: Kubectl
    files: Path
    url: str

    @property
    def node(self) -> InstallerJobs:
        return InstallerJobs(self.info.name, self.kubectl)

    def digest(self, file: str) -> str:
        return hashlib.sha256((self.files / file).read_bytes()).hexdigest()

    def fetch(self, file: str) -> dict[str, Any]:
        anonymous = {"location": f"{self.url}/{file}", "sha256": self.digest(file)}
        return {"type": "annonymousHttp", "anonHttp": anonymous}

    def apply(self, name: str, file: str) -> None:
        spec = {
            "nodeSelector": {"wasm": name},
            "fetchStrategy": self.fetch(file),
            "runtimeClass": {"name": name, "handler": name},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 1}},
        }
        shim = {"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": name}, "spec": spec}
        self.kubectl("apply", "--server-side", "-f", "-", given=shim)

    def conditions(self, name: str) -> dict[str, str]:
        """Return a Shim's conditions: status, reason and message of each."""
        status = self.kubectl.get("shim", name).get("status") or {}
        return {c["type"]: f"{c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions") or []}

    def condition(self, name: str, kind: str) -> str:
        return self.conditions(name).get(kind, "")

    def labels(self) -> dict[str, str]:
        return dict(self.kubectl.get("node", NODE)["metadata"]["labels"])

    def events(self, kind: str, name: str) -> list[str]:
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        found = json.loads(self.kubectl("get", "events", "-A", "--field-selector", selector, "-o", "json"))
        return [f"{event.get('reason')}: {event.get('message')}" for event in found["items"]]

    def gone(self, kind: str, name: str) -> bool:
        return not self.kubectl("get", kind, name, "--ignore-not-found", "-o", "name")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of a shim, and a program that is none."""
    how, folder = How(Lines(), threading.Event()), tmp_path_factory.mktemp("files")
    program = shim(how).read_bytes()
    (folder / "v1").write_bytes(program)
    (folder / "v2").write_bytes(program + b"behind its end a program may have anything")
    (folder / "no-shim").write_bytes((debian.tree("node", how) / "bin/busybox").read_bytes())
    return folder


@pytest.fixture(scope="module")
def world(files: Path, machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    assert machine
    how, folder = How(Lines(), threading.Event()), tmp_path_factory.mktemp("images")
    served = {f"srv/{path.name}": path for path in files.iterdir()}
    program = {"bin/busybox": debian.tree("node", how) / "bin/busybox"}
    serve = ["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/srv"]
    write_image(folder / "server.tar", Image(SERVER, serve, architecture()), {**program, **served})
    images = [installer_image(how), hello_wasm_image(hello_module(how), how), *folder.iterdir()]
    with owned_cluster(real_nodes=1) as info:
        for archive in images:
            load_image(info.name, NODE, archive)
        kubectl = Kubectl(info)
        for kind in KINDS:
            kubectl("apply", "--server-side", "-f", "-", given=make_definition(kind))
        server = pod("server", "", NODE, image=SERVER)
        del server["spec"]["containers"][0]["command"]
        kubectl.create(server | {"spec": server["spec"] | {"restartPolicy": "Always"}})
        url = f"http://{kubectl.running('server')}:8080"
        log = tmp_path_factory.mktemp("services") / "log"
        with Services(info, log):
            yield World(info, kubectl, files, url)


class Services:
    """`trellis run` beside the cluster."""

    def __init__(self, info: ClusterInfo, log: Path) -> None:
        settings: Mapping[str, str] = {
            "TRELLIS_KUBECONFIG": str(info.kubeconfig),
            "TRELLIS_NATS_URL": info.nats_url,
            "TRELLIS_HEALTH_PORT": "0",
            "TRELLIS_NODE_INSTALLER_IMAGE": INSTALLER,
            "TRELLIS_INSTALLER_PULL_POLICY": "Never",
            "TRELLIS_ALLOW_HTTP": "true",
            "TRELLIS_RETRY_MIN": "2s",
            "TRELLIS_RETRY_MAX": "5s",
            "TRELLIS_JOB_RETRIES": "0",
        }
        self._environment = {**os.environ, **settings}
        self._log = log

    def __enter__(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trellis_bundle", "run"], env=self._environment, stdout=output, stderr=output
            )

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            assert self._process.wait(timeout=40) == 0
        finally:
            self._process.kill()
            print(self._log.read_text(encoding="utf-8")[-20_000:])  # noqa: T201 (for who reads a failure)


def test_a_shim_is_applied_runs_wasm_rolls_and_leaves_no_trace(world: World, machine: dict[str, str]) -> None:
    kubectl, node = world.kubectl, world.node
    before, restarts = node.tree(), node.restarts()
    kubectl("label", "node", NODE, "wasm=wasmi")

    world.apply("wasmi", "v1")
    eventually(lambda: world.labels().get("wasmi") == "provisioned", "the node has the shim", 120)
    assert "wasmi" in kubectl.handlers(NODE)
    assert node.restarts() == restarts + 1
    eventually(lambda: world.condition("wasmi", "Available").startswith("True"), "the Shim says so", 30)
    assert world.labels()[names.LABEL_WASM_READY] == "ready"
    hello = wasm_pod("hello", NODE, "wasmi")
    del hello["spec"]["nodeName"]  # the RuntimeClass leads it there
    kubectl.create(hello)
    assert kubectl.ended("hello") == "hello from wasm\n"
    kubectl("delete", "pod", "hello", "--now")

    world.apply("wasmi", "v2")
    v2 = world.digest("v2")
    eventually(lambda: _sha256(node.root() / SHIM_PLACE) == v2, "the second version is there", 120)
    eventually(lambda: world.condition("wasmi", "Progressing").startswith("False Updated"), "and said to be", 60)
    assert node.restarts() == restarts + 1, "another program behind the same entry needs no restart"

    kubectl("delete", "shim", "wasmi", "--timeout=180s")
    eventually(lambda: world.gone("runtimeclass", "wasmi"), "the RuntimeClass is gone", 30)
    assert "wasmi" not in kubectl.handlers(NODE)
    assert not {"wasmi", names.LABEL_WASM_READY} & set(world.labels())
    assert node.restarts() == restarts + 2
    assert node.tree() == before
    assert fingerprint("/etc", "/opt") == machine


def test_a_program_that_is_no_shim_is_said_on_shim_and_node_and_changes_nothing(world: World) -> None:
    kubectl, node = world.kubectl, world.node
    before, restarts = node.tree(), node.restarts()
    kubectl("label", "node", NODE, "wasm=broken", "--overwrite")
    world.apply("broken", "no-shim")
    eventually(lambda: world.condition("broken", "Degraded").startswith("True"), "the Shim says that it fails", 120)
    assert NODE in world.condition("broken", "Degraded")
    eventually(
        lambda: any("ShimDoesNotRun" in event for event in world.events("Node", NODE)), "an Event of the Node", 30
    )
    assert not {"broken", names.LABEL_WASM_READY} & set(world.labels())
    kubectl("delete", "shim", "broken", "--timeout=120s")
    assert node.tree() == before
    assert node.restarts() == restarts
    eventually(lambda: not _jobs(kubectl), "no Job is left", 60)


def _jobs(kubectl: Kubectl) -> list[Any]:
    return list(json.loads(kubectl("get", "jobs", "-n", INSTALLERS, "-o", "json"))["items"])


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
