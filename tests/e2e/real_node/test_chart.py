"""The chart on three real nodes, as a user installs and uninstalls it: pods run, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.chart.chart_cluster import ChartCluster, chart_cluster
from support.chart.rendered import SYSTEM
from trellis import names
from trellis.crds.kinds import BY_DIRECTORY

SERVICES = {
    "trellis-node-watcher": 2,
    "trellis-provisioner": 2,
    "trellis-host-manager": 2,
    "trellis-service-reflector": 2,
    "trellis-application-manager": 2,
    "trellis-secrets-backend": 2,
    "trellis-controller-host": 1,
    "trellis-console": 1,
}
BUNDLE = {"trellis-bundle": 2, "trellis-console": 1}
KINDS = {
    f"customresourcedefinitions.apiextensions.k8s.io//{kind.name}" for kinds in BY_DIRECTORY.values() for kind in kinds
}
STAYS = KINDS | {
    "configmaps/trellis-installers/kube-root-ca.crt",
    "namespaces//trellis-installers",
    *(f"persistentvolumeclaims/{SYSTEM}/data-trellis-nats-{number}" for number in range(3)),
    f"secrets/{SYSTEM}/{names.SECRETS_KEY}",
    f"secrets/{SYSTEM}/trellis-bus",
    "serviceaccounts/trellis-installers/default",
}
"""What the page says that stays, and is to be deleted with both namespaces and the kinds."""


@pytest.fixture(scope="module")
def cluster(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartCluster]:
    assert machine
    with chart_cluster(tmp_path_factory.mktemp("chart")) as made:
        yield made


@pytest.mark.parametrize(("mode", "expected"), [("services", SERVICES), ("bundle", BUNDLE)])
def test_it_is_installed_becomes_available_and_leaves_nothing(
    cluster: ChartCluster, mode: str, expected: dict[str, int]
) -> None:
    before = cluster.inventory()
    cluster.prepare()
    prepared = cluster.inventory()
    try:
        cluster.install(mode=mode)
        replicas = {workload["metadata"]["name"]: workload["spec"]["replicas"] for workload in cluster.workloads()}
        assert expected.items() <= replicas.items()
        assert cluster.restarted() == []
        cluster.uninstall()
        left = prepared.new_in(cluster.inventory())
        assert {item for item in left if not item.startswith("apiservices.")} == STAYS
    finally:
        cluster.clean()
    after = cluster.inventory()
    assert before.new_in(after) == []
    assert after.nodes == before.nodes
