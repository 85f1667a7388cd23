"""An upgrade that would drop stored data, or that Kubernetes would refuse half-way, is refused before it starts."""

from __future__ import annotations

import http
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chart.rendered import CHART, ChartRefusedError, helm, only
from trellis.kube.resources import STATEFUL_SETS, Resource
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

RELEASE = "bus"


class Bus:
    """The chart with its NATS and nothing else, in a namespace of the test's own."""

    def __init__(self, api: Api, kubeconfig: Path, namespace: str) -> None:
        self._api = api
        self._kubeconfig = kubeconfig
        self._namespace = namespace

    def apply(self, **nats: Any) -> None:
        values = {"services": only(), "crds": {"install": False}, "nats": nats}
        options = ("--namespace", self._namespace, "--install", "--wait=false", "--no-hooks")
        helm("upgrade", RELEASE, str(CHART), *options, values=values, kubeconfig=self._kubeconfig)

    def servers(self) -> int:
        status, found = self._api.call("GET", STATEFUL_SETS.path(self._namespace, "trellis-nats"))
        assert status == http.HTTPStatus.OK
        return int(found["spec"]["replicas"])

    def delete(self, res: Resource, name: str) -> None:
        self._api.call("DELETE", res.path(self._namespace, name))

    def uninstall(self) -> None:
        options = ("--namespace", self._namespace, "--ignore-not-found", "--no-hooks")
        helm("uninstall", RELEASE, *options, kubeconfig=self._kubeconfig)


@pytest.fixture
def bus(cluster: ClusterInfo, cluster_api: Api, namespace: str) -> Iterator[Bus]:
    made = Bus(cluster_api, Path(cluster.kubeconfig), namespace)
    yield made
    made.uninstall()


@pytest.mark.parametrize(("has", "wanted"), [(1, 3), (3, 1)])
def test_another_number_of_servers_is_refused_until_they_are_deleted(bus: Bus, has: int, wanted: int) -> None:
    bus.apply(replicas=has)
    with pytest.raises(ChartRefusedError, match=rf"nats\.replicas: .* {has} .* {wanted}\b.*nats\.replicas={has}\b"):
        bus.apply(replicas=wanted)
    assert bus.servers() == has
    bus.apply(replicas=has)
    bus.delete(STATEFUL_SETS, "trellis-nats")
    bus.apply(replicas=wanted)
    assert bus.servers() == wanted


def test_another_volume_is_refused_until_the_stateful_set_is_deleted(bus: Bus) -> None:
    bus.apply(storage={"size": "3Gi"})
    with pytest.raises(ChartRefusedError, match=r"nats\.storage: .*delete statefulset trellis-nats --cascade=orphan"):
        bus.apply(storage={"size": "4Gi"})
    bus.delete(STATEFUL_SETS, "trellis-nats")
    bus.apply(storage={"size": "4Gi"})
