"""docs/clusters.md on a real kind: images from files, the chart, an annotated node, the first pod, the removal.

The tests are steps of one story, in their order. The image of the node is made here, of kind's own files.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.chart.walk_through import BASE, SECONDS, SHIM, WalkThrough, walk_through
from support.kind.cluster import NODE, KindCluster, kind_cluster
from support.nodes.real_nodes import eventually
from support.suite.page_steps import PageShell, block, section, steps
from support.suite.pages import DOCS
from trellis import names
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.gotoolchain import go_program
from trellis_dev.localcluster.progress import Lines

HOW = How(Lines(), threading.Event())
CONFIG = "/etc/containerd/config.toml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindCluster]:
    with kind_cluster(tmp_path_factory.mktemp("kind"), HOW) as made:
        yield made


@pytest.fixture(scope="module")
def walk(cluster: KindCluster) -> WalkThrough[KindCluster]:
    return walk_through(cluster, HOW)


@pytest.fixture(scope="module")
def before(cluster: KindCluster) -> dict[str, str]:
    """Return the configuration of containerd before Trellis."""
    return files(cluster)


def files(cluster: KindCluster) -> dict[str, str]:
    """Return the files that the installer can have changed, with their checksums."""
    listed = cluster.run("sh", "-c", f"find /etc/containerd /etc/systemd /{BASE} -type f | xargs sha256sum")
    return {path: digest for digest, path in (line.split() for line in listed.splitlines())}


def containerd(cluster: KindCluster) -> str:
    """Return the process ID of containerd."""
    return cluster.run("systemctl", "show", "--property=MainPID", "containerd")


def restarts(walk: WalkThrough[KindCluster]) -> dict[str, int]:
    """Return the pods of all namespaces with the restarts of their containers."""
    return {
        pod["metadata"]["name"]: sum(status["restartCount"] for status in pod["status"]["containerStatuses"])
        for pod in walk.chart.listed("pods", "-A", "--field-selector", "status.phase=Running")
    }


def opted_in(walk: WalkThrough[KindCluster]) -> None:
    """Opt the node in as the page says, and wait until it is ready."""
    process = containerd(walk.cluster)
    walk.annotate()
    walk.outside.trellis("rollout", "status", SHIM, "--watch")
    assert walk.is_provisioned()
    assert containerd(walk.cluster) != process, "containerd was restarted"
    assert SHIM in walk.kubectl.handlers(NODE)
    assert walk.kubectl.get("node", NODE)["metadata"]["labels"][names.LABEL_WASM_READY] == names.WASM_READY


def test_the_node_is_as_nodes_of_kind_are(cluster: KindCluster) -> None:
    assert cluster.run("cat", "/proc/1/comm") == "systemd\n"
    assert "cgroupDriver: systemd" in cluster.run("cat", "/var/lib/kubelet/config.yaml")
    assert cluster.run("sh", "-c", "ls /run/dbus 2>/dev/null || echo none") == "none\n"


def test_the_chart_runs_with_images_from_files(walk: WalkThrough[KindCluster], before: dict[str, str]) -> None:
    assert before
    walk.install()
    walk.chart.helm("test", "trellis")


def test_an_annotated_node_runs_wasm(walk: WalkThrough[KindCluster], before: dict[str, str]) -> None:
    started = restarts(walk)
    opted_in(walk)
    assert walk.wasm_pod() == "hello from wasm\n"
    now = files(walk.cluster)
    changed = {path for path in before if now[path] != before[path]}
    added = now.keys() - before.keys()
    assert changed == {CONFIG}
    assert all(path.startswith(f"/{BASE}/") for path in added)
    walk.outside.trellis("explain", "node", NODE)
    assert restarts(walk) == started, "the pods on the node continued to run"


def test_the_first_pod_of_the_page_prints_its_text(walk: WalkThrough[KindCluster], tmp_path: Path) -> None:
    text, cluster = section(DOCS / "shims.md", "A first Wasm pod"), walk.cluster
    (tmp_path / "hello.go").write_text(block(text, "go"))
    (tmp_path / "Dockerfile").write_text(block(text, "dockerfile"))
    shell = PageShell(tmp_path, Path(cluster.info.kubeconfig), (go_program(Lines()).parent, cluster.info.bin_dir))
    compiling, image, pod = steps(text)
    shell.run(compiling)
    build, push = image.splitlines()
    assert push == "docker push registry.example.com/team/hello:1"
    cluster.engine.run("/bin/sh", "-ec", f"cd {tmp_path}\n{build}")
    [load] = re.findall(r"`kind (load docker-image [^`]+)` replaces the push", text)
    cluster.kind(*load.split())
    [printed] = re.findall(r"The last command prints `([^`]+)`", text)
    assert shell.run(pod).splitlines()[-1] == printed
    walk.kubectl("delete", "pod", "hello", "--now")


def test_without_the_annotation_the_node_is_as_before(walk: WalkThrough[KindCluster], before: dict[str, str]) -> None:
    walk.withdraw()
    eventually(walk.is_clean, "the runtime is removed", SECONDS)
    assert files(walk.cluster) == before


def test_the_removal_of_shim_and_chart_leaves_the_former_node(
    walk: WalkThrough[KindCluster], before: dict[str, str]
) -> None:
    opted_in(walk)
    walk.kubectl("delete", "shims", "--all", "--timeout=300s")
    assert walk.is_clean()
    walk.chart.uninstall()
    assert files(walk.cluster) == before


def test_kind_deletes_the_cluster_with_the_node(cluster: KindCluster) -> None:
    cluster.kind("delete", "cluster")
    assert cluster.engine.run("docker", "ps", "--all", "--quiet") == ""
    assert cluster.engine.run("docker", "volume", "ls", "--quiet") == ""
