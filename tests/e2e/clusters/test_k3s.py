"""docs/clusters.md on a real k3s: images from files, the chart, an annotated node, restarts, the removal.

The tests are steps of one story, in their order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from support.chart.walk_through import BASE, SECONDS, SHIM, WalkThrough, walk_through
from support.k3s.cluster import K3sCluster, k3s_cluster
from support.k3s.node import CONFIG, MACHINE, NODE, OWN, K3sNode
from support.nodes.real_nodes import eventually
from trellis import names
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines

HOW = How(Lines(), threading.Event())
HELLO = "hello from wasm\n"
RUNTIME = "[plugins.'io.containerd.cri.v1.runtime']\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[K3sCluster]:
    with k3s_cluster(tmp_path_factory.mktemp("k3s"), HOW, MACHINE) as made:
        yield made


@pytest.fixture(scope="module")
def walk(cluster: K3sCluster) -> WalkThrough[K3sCluster]:
    return walk_through(cluster, HOW)


@pytest.fixture(scope="module")
def before(cluster: K3sCluster) -> dict[str, bytes]:
    """Return the configuration of containerd before Trellis."""
    found = cluster.node.files()
    assert found.keys() == {CONFIG, *OWN}
    return found


def opted_in(walk: WalkThrough[K3sCluster]) -> None:
    """Opt the node in as the page says, and wait until it is ready."""
    service = walk.cluster.node.service()
    walk.annotate()
    eventually(walk.is_rolled_out, "the rollout is complete", SECONDS)
    eventually(walk.is_provisioned, "the node has the runtime", SECONDS)
    assert walk.cluster.node.service() != service, "k3s was restarted"
    assert SHIM in walk.kubectl.handlers(NODE)
    assert walk.kubectl.get("node", NODE)["metadata"]["labels"][names.LABEL_WASM_READY] == names.WASM_READY


def test_the_chart_runs_with_images_from_files(walk: WalkThrough[K3sCluster], before: dict[str, bytes]) -> None:
    assert before
    walk.install()
    walk.chart.helm("test", "trellis")


def test_an_annotated_node_runs_wasm(walk: WalkThrough[K3sCluster], before: dict[str, bytes]) -> None:
    opted_in(walk)
    assert walk.wasm_pod() == HELLO
    assert walk.cluster.node.changed(before) == {"config-v3.toml.d/trellis.toml"}
    walk.outside.trellis("explain", "node", NODE)


def test_no_container_was_restarted_with_k3s(walk: WalkThrough[K3sCluster]) -> None:
    assert walk.chart.restarted() == []


def test_a_restart_of_k3s_keeps_the_runtime(walk: WalkThrough[K3sCluster]) -> None:
    node = walk.cluster.node
    files, service = node.files(), node.service()
    node.restart_service()
    walk.cluster.until_ready()
    assert node.service() != service
    assert node.files() == files
    eventually(lambda: SHIM in walk.kubectl.handlers(NODE), "the node lists the handler", SECONDS)
    assert walk.wasm_pod() == HELLO


def test_without_the_annotation_the_node_is_as_before(walk: WalkThrough[K3sCluster], before: dict[str, bytes]) -> None:
    walk.withdraw()
    eventually(walk.is_clean, "the runtime is removed", SECONDS)
    assert walk.cluster.node.changed(before) == set()
    assert not (walk.cluster.node.upper / BASE).exists()


@pytest.mark.parametrize("name", ["config-v3.toml.tmpl", "config.toml.tmpl"])
def test_a_template_of_the_user_is_extended_and_restored(walk: WalkThrough[K3sCluster], name: str) -> None:
    node = walk.cluster.node
    template = node.etc / name
    template.write_text(own_template(node) if "v3" in name else '{{ template "base" . }}\n# of the user\n')
    node.restart_service()
    walk.cluster.until_ready()
    files = node.files()
    opted_in(walk)
    assert walk.wasm_pod() == HELLO
    assert node.changed(files) == {name, CONFIG}
    walk.withdraw()
    eventually(walk.is_clean, "the runtime is removed", SECONDS)
    assert node.changed(files) == set()
    template.unlink()


def own_template(node: K3sNode) -> str:
    """Return a template as users have it that k3s before its imports asked for: a copy of the configuration."""
    lines = (node.etc / CONFIG).read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("imports"))
    assert RUNTIME in text
    return text.replace(RUNTIME, f"{RUNTIME}  restrict_oom_score_adj = true\n")


def test_the_removal_of_shim_and_chart_leaves_the_former_node(
    walk: WalkThrough[K3sCluster], before: dict[str, bytes]
) -> None:
    walk.cluster.node.run("systemctl", "restart", "k3s")  # without the template of the test before
    walk.cluster.until_ready()
    opted_in(walk)
    walk.delete_shim()
    eventually(walk.is_deleted, "the Shim is deleted", SECONDS)
    eventually(walk.is_clean, "the runtime is removed", SECONDS)
    walk.chart.uninstall()
    assert walk.cluster.node.changed(before) == set()
    assert not (walk.cluster.node.upper / BASE).exists()
