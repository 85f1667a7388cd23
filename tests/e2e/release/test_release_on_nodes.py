"""The chart of a release, by digest from a registry, on three real nodes that reach nothing else.

Nothing is loaded on the nodes: all images of the installation are pulled from the registry. The contents of the images
are those that a container engine would build from the Dockerfiles.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.chart_cluster import ChartCluster
from support.chart.rendered import CHART, SYSTEM
from support.chart.services_image import services_image
from support.nodes.https_files import machine_address
from support.nodes.installer_image import installer_image
from support.nodes.real_nodes import Kubectl, eventually, wasm_pod
from support.releases.registry import registry
from support.releases.released import Released, program, run
from trellis import names
from trellis_dev.localcluster import owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import hello_wasm_image, nats_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import run_in
from trellis_dev.localcluster.wasmshim import hello_module
from trellis_tools.release.plan import CHART_NAME, IMAGES

HOW = How(Lines(), threading.Event())
SECONDS = 180
"""From an annotated node to a Wasm pod that runs."""
ROOTS = {"services": "opt/trellis/", "installer": "opt/trellis-installer/"}


@dataclass(frozen=True)
class World:
    """Three real nodes, the registry where they reach it, and the release in it."""

    cluster: ChartCluster
    host: str
    released: Released

    def at(self, reference: str) -> str:
        """Return the name by which nodes know what the release calls by its registry on the loopback address."""
        return reference.replace(self.released.registry.partition("/")[0], self.host)


def pushed(archive_file: Path, reference: str, folder: Path) -> str:
    """Push an image of this machine; return its reference."""
    with tarfile.open(archive_file) as layout:
        layout.extractall(folder, filter="data")
    run(program("crane"), "push", str(folder), reference)
    return reference


@pytest.fixture(scope="module")
def world(released: Released, storage: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with owned_cluster(real_nodes=3) as info, registry(storage, machine_address(info)) as host:
        for node in info.real_nodes:
            hosts = tmp_path_factory.mktemp("hosts") / "hosts.toml"
            hosts.write_text(f'server = "http://{host}"\n')
            place = f"/etc/containerd/certs.d/{host}"
            assert run_in(info.name, node.name, ["mkdir", "-p", place]).returncode == 0
            assert run_in(info.name, node.name, ["tee", f"{place}/hosts.toml"], hosts).returncode == 0
        cluster = ChartCluster(info, Kubectl(info))
        cluster.prepare()
        yield World(cluster, host, released)


def helm(world: World, *arguments: str) -> str:
    place = ("--kubeconfig", str(world.cluster.info.kubeconfig), "--namespace", SYSTEM)
    return run(program("helm"), *arguments, *place)


def test_the_chart_is_installed_by_digest_with_its_default_values(world: World, tmp_path: Path) -> None:
    image = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["nats"]["image"]
    pushed(nats_image(HOW), f"{world.host}/{image['repository']}:{image['tag']}", tmp_path / "nats")
    chart = f"oci://{world.host}/team/{CHART_NAME}@{world.released.digest('chart')}"
    helm(world, "install", "trellis", chart, "--plain-http", "--set", f"global.imageRegistry={world.host}")
    world.cluster.until_available()
    assert world.cluster.restarted() == []
    found = {
        status["imageID"].partition("@")[2]
        for item in world.cluster.listed("pods", "-n", SYSTEM, "--selector", "app.kubernetes.io/name=trellis")
        for status in item["status"]["containerStatuses"]
        if status["name"] != "nats"
    }
    assert found == {world.released.digest("services")}


def test_an_annotated_node_runs_wasm(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl = world.cluster.kubectl
    hello = pushed(hello_wasm_image(hello_module(HOW), HOW), f"{world.host}/team/hello-wasm:1", tmp_path / "hello")
    start = time.monotonic()
    kubectl("annotate", "node", "real-1", f"{names.ANNOTATION_OPT_IN}=true")
    pod = wasm_pod("hello", "real-1", "wasi")
    del pod["spec"]["nodeName"]  # the RuntimeClass leads it there
    pod["spec"]["containers"][0] |= {"image": hello, "imagePullPolicy": "IfNotPresent"}
    images: set[str] = set()

    def is_installing() -> bool:  # a Job is deleted soon after it has ended
        images.update(
            container["image"]
            for job in world.cluster.listed("jobs", "-n", "trellis-installers")
            for container in job["spec"]["template"]["spec"]["containers"]
        )
        return bool(images and kubectl("get", "runtimeclass", "wasi", "--ignore-not-found"))

    eventually(is_installing, "there are a Job and a RuntimeClass", SECONDS)
    kubectl.create(pod)
    assert kubectl.ended("hello") == "hello from wasm\n"
    seconds = time.monotonic() - start
    with capsys.disabled():
        sys.stdout.write(f"\nannotated node to finished Wasm pod: {seconds:.0f} s\n")
    assert seconds < SECONDS
    [image] = images
    assert image.partition("@")[2] == world.released.digest("installer")


@pytest.mark.parametrize("key", list(IMAGES))
def test_an_image_has_what_a_container_engine_builds_from_the_dockerfile(released: Released, key: str) -> None:
    built = {"services": services_image, "installer": installer_image}[key](HOW)
    with tarfile.open(built) as image:
        [document] = json.load(_member(image, "manifest.json"))
        wanted = {}
        for layer in document["Layers"][1:]:
            with tarfile.open(fileobj=_member(image, layer)) as content:
                wanted |= contents(content, ROOTS[key])
    name = IMAGES[key]
    with released.layers(name, released.manifests(key, name)["amd64"]["digest"]) as layers:
        found = contents(layers[-1], ROOTS[key])
    assert len(wanted) > 50
    assert without_versions(wanted) == without_versions(found)
    same = {path for path in without_versions(wanted) if not path.endswith((".pyc", "/RECORD", "/pyvenv.cfg"))}
    assert {path for path in same if wanted[path] != found[path]} == set()


def without_versions(files: Mapping[str, bytes]) -> set[str]:
    """Return paths without the metadata of Trellis, whose directory has its version."""
    return {path for path in files if "/trellis_wasm-" not in path}


def _member(image: tarfile.TarFile, name: str) -> Any:
    file = image.extractfile(name)
    assert file is not None
    return file


def contents(layer: tarfile.TarFile, root: str) -> dict[str, bytes]:
    """Return the files of a layer below a directory, without the interpreter's links."""
    found = {}
    for entry in layer:
        path = entry.name.removeprefix("./")
        if entry.isfile() and path.startswith(root):
            found[path] = _member(layer, entry.name).read()
    return found


def test_nothing_is_missing_that_a_shell_would_have_shown(world: World) -> None:
    """The installer's image has no shell and no package manager; the program that it needs of its base is there."""
    with world.released.layers("node-installer", _manifest(world.released)) as layers:
        paths = set(layers[0].getnames())
    assert "usr/bin/nsenter" in paths
    assert not {path for path in paths if path in {"usr/bin/sh", "usr/bin/apt", "usr/bin/dpkg", "usr/bin/perl"}}


def _manifest(released: Released) -> str:
    return str(released.manifests("installer", "node-installer")["amd64"]["digest"])


def test_the_registry_serves_the_same_to_nodes_and_to_this_machine(world: World) -> None:
    command = [program("crane"), "digest", "--insecure", world.at(world.released.reference("services"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == world.released.digest("services")
