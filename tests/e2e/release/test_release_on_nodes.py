"""The chart of a release, by digest from a registry, on three real nodes that reach nothing else.

Nothing is loaded on the nodes: all images of the installation are pulled from the registry. The contents of the images
are those that a container engine would build from the Dockerfiles.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.chart.chart_cluster import ChartCluster
from support.chart.rendered import SYSTEM
from support.chart.services_image import services_image
from support.nodes.https_files import HttpsFiles, http_files, machine_address
from support.nodes.installer_image import installer_image
from support.nodes.real_nodes import Kubectl, eventually, wasm_pod
from support.nodes.shim_archives import archive
from support.releases.registry import registry
from support.releases.released import Released, program, run
from trellis import names
from trellis_dev.localcluster import owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import hello_wasm_image, nats_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import run_in
from trellis_dev.localcluster.wasmshim import hello_module, shim
from trellis_tools.release.plan import CHART_NAME, IMAGES

HOW = How(Lines(), threading.Event())
SECONDS = 180
"""From a labelled node to a Wasm pod that runs."""
ROOTS = {"services": "opt/trellis/", "installer": "opt/trellis-installer/"}


@dataclass(frozen=True)
class World:
    """Three real nodes, the registry where they reach it, the release in it, and files that they may fetch."""

    cluster: ChartCluster
    host: str
    released: Released
    files: HttpsFiles

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
    files = tmp_path_factory.mktemp("files")
    (files / "wasmi.tar.gz").write_bytes(archive(shim(HOW).read_bytes()))
    with owned_cluster(real_nodes=3) as info, registry(storage, machine_address(info)) as host:
        for node in info.real_nodes:
            hosts = tmp_path_factory.mktemp("hosts") / "hosts.toml"
            hosts.write_text(f'server = "http://{host}"\n')
            place = f"/etc/containerd/certs.d/{host}"
            assert run_in(info.name, node.name, ["mkdir", "-p", place]).returncode == 0
            assert run_in(info.name, node.name, ["tee", f"{place}/hosts.toml"], hosts).returncode == 0
        with http_files(info, files) as served:
            cluster = ChartCluster(info, Kubectl(info))
            cluster.prepare()
            yield World(cluster, host, released, served)


def values(world: World, nats: str) -> dict[str, Any]:
    """Return the default values, plus the registry where the nodes reach it."""
    settings = {
        "TRELLIS_NODE_INSTALLER_IMAGE": world.at(world.released.reference("installer")),
        "TRELLIS_ALLOW_HTTP": "true",
    }
    return {
        "image": {"repository": world.at(f"{world.released.registry}/{IMAGES['services']}")},
        "nats": {"image": nats},
        "services": {"provisioner": {"settings": settings}},
    }


def helm(world: World, *words: str, given: Mapping[str, Any]) -> str:
    place = ("--kubeconfig", str(world.cluster.info.kubeconfig), "--namespace", SYSTEM)
    return run(program("helm"), *words, *place, "--values", "-", given=json.dumps(given))


def test_the_chart_is_installed_by_digest(world: World, tmp_path: Path) -> None:
    nats = pushed(nats_image(HOW), f"{world.host}/team/nats:1", tmp_path / "nats")
    chart = f"oci://{world.host}/team/{CHART_NAME}@{world.released.digest('chart')}"
    helm(world, "install", "trellis", chart, "--plain-http", given=values(world, nats))
    world.cluster.until_available()
    assert world.cluster.restarted() == []
    found = {
        status["imageID"].partition("@")[2]
        for one in world.cluster.listed("pods", "-n", SYSTEM, "--selector", "app.kubernetes.io/name=trellis")
        for status in one["status"]["containerStatuses"]
        if status["name"] not in {"nats", "reloader"}
    }
    assert found
    assert all(digest == world.released.digest("services") for digest in found), found


def is_ready(kubectl: Kubectl, node: str) -> bool:
    labels = kubectl.get("node", node)["metadata"]["labels"]
    return bool(labels.get(names.LABEL_WASM_READY) == names.WASM_READY)


def test_a_labelled_node_runs_wasm(world: World, tmp_path: Path) -> None:
    kubectl = world.cluster.kubectl
    hello = pushed(hello_wasm_image(hello_module(HOW), HOW), f"{world.host}/team/hello-wasm:1", tmp_path / "hello")
    source = {"location": world.files.url("wasmi.tar.gz"), "sha256": world.files.sha256("wasmi.tar.gz")}
    manifest = {
        "apiVersion": "runtime.spinkube.dev/v1alpha1",
        "kind": "Shim",
        "metadata": {"name": "wasmi"},
        "spec": {
            "nodeSelector": {"wasm": "true"},
            "fetchStrategy": {"anonHttp": source},
            "runtimeClass": {"name": "wasmi", "handler": "wasmi"},
        },
    }
    kubectl.create(manifest)
    start = time.monotonic()
    kubectl("label", "node", "real-1", "wasm=true")
    eventually(lambda: is_ready(kubectl, "real-1"), "the node is ready", SECONDS)
    ends = wasm_pod("hello", "real-1", "wasmi")
    ends["spec"]["containers"][0] |= {"image": hello, "imagePullPolicy": "IfNotPresent"}
    kubectl.create(ends)
    assert kubectl.ended("hello") == "hello from wasm\n"
    assert time.monotonic() - start < SECONDS


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
    *_, own = released.layers(name, released.manifests(key, name)["amd64"]["digest"])
    found = contents(own, ROOTS[key])
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
    base = next(world.released.layers("node-installer", _manifest(world.released)))
    paths = set(base.getnames())
    assert "usr/bin/nsenter" in paths
    assert not {path for path in paths if path in {"usr/bin/sh", "usr/bin/apt", "usr/bin/dpkg", "usr/bin/perl"}}


def _manifest(released: Released) -> str:
    return str(released.manifests("installer", "node-installer")["amd64"]["digest"])


def test_the_registry_serves_the_same_to_nodes_and_to_this_machine(world: World) -> None:
    command = [program("crane"), "digest", "--insecure", world.at(world.released.reference("services"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == world.released.digest("services")
