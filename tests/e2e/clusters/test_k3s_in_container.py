"""k3s as the first process of its node, as in docker-compose.yml: the node ends with it, and an engine starts it again.

No container engine is here: the test starts the node again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from support.chart.walk_through import BASE, SECONDS, WalkThrough, walk_through
from support.k3s.cluster import K3sCluster, k3s_cluster
from support.k3s.node import CONTAINER
from support.nodes.real_nodes import eventually
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines

HOW = How(Lines(), threading.Event())


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalkThrough[K3sCluster]]:
    with k3s_cluster(tmp_path_factory.mktemp("k3s"), HOW, CONTAINER) as made:
        yield walk_through(made, HOW)


def started_again(cluster: K3sCluster) -> None:
    """Wait until the installer has ended the node, and start it as an engine does."""
    cluster.node.restart()
    cluster.until_ready()


def test_an_annotated_node_runs_wasm_after_its_restart(walk: WalkThrough[K3sCluster]) -> None:
    files = walk.cluster.node.files()
    walk.install()
    walk.annotate()
    started_again(walk.cluster)
    eventually(walk.is_provisioned, "the node has the runtime", SECONDS)
    assert walk.wasm_pod() == "hello from wasm\n"
    walk.delete_shim()
    started_again(walk.cluster)
    eventually(walk.is_deleted, "the Shim is deleted", SECONDS)
    eventually(walk.is_clean, "the runtime is removed", SECONDS)
    assert walk.cluster.node.files() == files
    assert not (walk.cluster.node.upper / BASE).exists()
