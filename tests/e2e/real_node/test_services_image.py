"""The services' image on a real node, as the chart runs it: it starts, it can write where it may, and nowhere else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendered import CHART, SYSTEM, Manifest, helm, of, only, rendered
from support.chart.services_image import SERVICES, image_of, services_image
from support.nodes.real_nodes import Kubectl, eventually, pod
from trellis.services import SERVICES as REGISTRY
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import NATS, nats_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import load_image

CLUSTER = "one_node"
NODE = "real-0"
TEAM = "team-a"
EXAMPLES = CHART.parents[1] / "examples" / "controllers"
IMAGE = {**image_of(SERVICES), "pullPolicy": "Never"}
LOOK = """
import importlib, json, os, shutil, subprocess, sys
from pathlib import Path

def writes(directory):
    try:
        Path(directory, "probe").write_text("x")
    except OSError as error:
        return type(error).__name__ + " " + str(error.errno)
    return "written"

found = {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups()}
found["imported"] = []
for name in sys.argv[1].split(","):
    importlib.import_module(name)
    found["imported"].append(name)
places = ["/", "/etc", "/opt/trellis", "/usr/share/doc/trellis", "/var/lib", "/root", "/home", "/tmp", sys.argv[2]]
found["writes"] = {place: writes(place) for place in places}
found["version"] = subprocess.run(["trellis", "version"], capture_output=True, text=True, check=True).stdout.strip()
programs = "pip pip3 uv cc gcc g++ clang ld as make cargo go curl wget git".split()
found["programs"] = [name for name in programs if shutil.which(name)]
modules = "pip setuptools wheel ensurepip pkg_resources cyclonedx".split()
found["modules"] = [name for name in modules if importlib.util.find_spec(name)]
status = Path("/proc/self/status").read_text().splitlines()
wanted = ("CapEff:", "NoNewPrivs:", "Seccomp:")
found["status"] = {line.split(":")[0]: line.split()[1] for line in status if line.startswith(wanted)}
import wasmtime
store = wasmtime.Store()
text = '(module (func (export "answer") (result i32) i32.const 42))'
module = wasmtime.Module(store.engine, text)
found["guest"] = wasmtime.Instance(store, module, []).exports(store)["answer"](store)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def kubectl(one_node: ClusterInfo) -> Kubectl:
    how = How(Lines(), threading.Event())
    for archive in (services_image(how), nats_image(how)):
        load_image(one_node.name, NODE, archive)
    return Kubectl(one_node)


def deployment(component: str) -> Manifest:
    """Return a Deployment of the chart."""
    values: dict[str, Any] = {"image": IMAGE, "nats": {"enabled": False, "url": "nats://nobody:4222"}}
    return of(rendered(**values))["Deployment", SYSTEM, f"trellis-{component}"]


def looking(component: str, writable: str) -> Manifest:
    """Return a service's pod as the chart has it, but that it says what it sees in place of serving."""
    spec = deployment(component)["spec"]["template"]["spec"]
    [container] = spec["containers"]
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        container.pop(name, None)
    packages = ",".join([*(f"{item.package}.app" for item in REGISTRY.values()), "trellis_cli.commands"])
    container["command"] = ["/opt/trellis/bin/python3", "-c", LOOK, packages, writable]
    del spec["serviceAccountName"]
    spec |= {"nodeName": NODE, "restartPolicy": "Never", "automountServiceAccountToken": False}
    metadata = {"name": f"looks-{component}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_pod_of_the_chart_writes_into_its_volumes_and_nowhere_else(kubectl: Kubectl) -> None:
    snapshots = "/var/lib/trellis/controllers"
    manifest = looking("controller-host", snapshots)
    kubectl.create(manifest)
    found = json.loads(kubectl.ended(manifest["metadata"]["name"]).splitlines()[-1])
    assert found["version"] == version("trellis-wasm")
    assert (found["uid"], found["gid"], found["groups"]) == (65532, 65532, [65532])
    assert len(found["imported"]) == len(REGISTRY) + 1
    written = {place for place, answer in found["writes"].items() if answer == "written"}
    assert written == {"/tmp", snapshots}
    assert set(found["writes"].values()) - {"written"} <= {"OSError 30", "PermissionError 13"}
    assert found["writes"]["/opt/trellis"] == "OSError 30"
    assert found["status"] == {"CapEff": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
    assert found["programs"] == found["modules"] == []
    assert found["guest"] == 42, "wasmtime's native library works where nothing can be written"


@pytest.fixture
def _installed(one_node: ClusterInfo, kubectl: Kubectl) -> Iterator[None]:
    """node_watcher and controller_host, installed by Helm, on a bus as `trellis dev image` says to make one."""
    account = {"namespace": TEAM, "serviceAccount": "ttl", "watch": ["jobs.batch"]}
    values = {
        "image": IMAGE,
        "nats": {"enabled": False, "url": f"nats://bus.{SYSTEM}:4222"},
        "services": only("nodeWatcher", "controllerHost"),
        "controllers": {"accounts": [account]},
    }
    for name in (SYSTEM, TEAM):
        kubectl("create", "namespace", name)
    arguments = ("bus", "--namespace", SYSTEM, "--image", NATS, "--port", "4222", "--expose", "--", "--jetstream")
    kubectl("run", *arguments)
    kubectl("label", "namespace", SYSTEM, "pod-security.kubernetes.io/enforce=restricted")
    kubeconfig = Path(one_node.kubeconfig)
    namespace = ("--namespace", SYSTEM)
    helm("install", "trellis", str(CHART), *namespace, values=values, kubeconfig=kubeconfig)
    try:
        yield
    finally:
        helm("uninstall", "trellis", *namespace, "--ignore-not-found", kubeconfig=kubeconfig)
        kubectl("delete", "wasmcontrollers", "--all", "-A", "--wait=false")
        kubectl("delete", "-R", "-f", str(CHART.parents[1] / "crds"), "--ignore-not-found", "--wait=false")
        kubectl("delete", "namespace", SYSTEM, TEAM, "trellis-installers", "--ignore-not-found", "--wait=false")


def pods(kubectl: Kubectl, component: str) -> list[Mapping[str, Any]]:
    chosen = f"app.kubernetes.io/component={component}"
    return list(json.loads(kubectl("get", "pods", "-n", SYSTEM, "-l", chosen, "-o", "json"))["items"])


@pytest.mark.usefixtures("_installed")
def test_services_from_the_image_become_ready_and_a_controller_acts(kubectl: Kubectl) -> None:
    for component in ("node-watcher", "controller-host"):
        kubectl("rollout", "status", f"deployment/trellis-{component}", "-n", SYSTEM, "--timeout=300s")
        for item in pods(kubectl, component):
            [status] = item["status"]["containerStatuses"]
            assert (status["restartCount"], status["ready"]) == (0, True)
    module = EXAMPLES / "ttl.wasm"
    kubectl("create", "configmap", "ttl-module", "-n", TEAM, f"--from-file=ttl.wasm={module}")
    for item in yaml.safe_load_all((EXAMPLES / "ttl.yaml").read_text()):
        kubectl.create(item)
    kubectl("wait", "wasmcontroller/ttl", "-n", TEAM, "--for=condition=Ready", "--timeout=300s")
    done = pod("done", "true", NODE)["spec"]
    template = {"metadata": {"labels": {"app": "done"}}, "spec": done}
    annotations = {"examples.trellis.dev/ttl-seconds": "1"}
    metadata = {"name": "done", "namespace": TEAM, "annotations": annotations}
    kubectl.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}})
    eventually(
        lambda: not kubectl("get", "job", "done", "-n", TEAM, "--ignore-not-found"),
        "the controller deletes the Job that is done",
    )
