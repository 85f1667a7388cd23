"""An upgrade that would drop stored data, or that Kubernetes would refuse half-way, is refused before it starts."""

from __future__ import annotations

import http
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chart.rendered import CHART, ChartRefusedError, helm, only
from trellis.kube.resources import NAMESPACES, Resource
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
RELEASE = "bus"


class Bus:
    """The chart with its NATS and as little else as possible, in a namespace of the test's own."""

    def __init__(self, api: Api, kubeconfig: Path, namespace: str) -> None:
        self._api = api
        self._kubeconfig = kubeconfig
        self._namespace = namespace

    def apply(self, *services: str, more: dict[str, Any] | None = None, **nats: Any) -> None:
        values = {"services": only(*services), "crds": {"install": False}, "nats": nats, **(more or {})}
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


SMALL = {"enabled": True, "storage": {"size": "1Gi"}}


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ({"nats": {"storage": {"size": "3Gi"}}}, {"nats": {"storage": {"size": "4Gi"}}}, "nats"),
        ({"nats": {}}, {"nats": {"storage": {"storageClassName": "fast"}}}, "nats"),
        ({"latticeNats": SMALL}, {"latticeNats": {**SMALL, "storage": {"size": "2Gi"}}}, "lattice-nats"),
        ({"jaeger": {"enabled": True}}, {"jaeger": {"enabled": True, "storage": {"type": "badger"}}}, "jaeger"),
    ],
)
def test_another_volume_is_refused_until_the_stateful_set_is_deleted(
    bus: Bus, before: dict[str, Any], after: dict[str, Any], name: str
) -> None:
    bus.apply(more=before)
    [value] = after
    remedy = f"delete statefulset trellis-{name} --cascade=orphan"
    with pytest.raises(ChartRefusedError, match=rf"{value}\.storage: .*{remedy}"):
        bus.apply(more=after)
    bus.apply(more=before)
    bus.delete(STATEFUL_SETS, f"trellis-{name}")
    bus.apply(more=after)


def test_the_same_size_in_another_unit_is_no_change(bus: Bus) -> None:
    bus.apply(storage={"size": "3Gi"})
    bus.apply(storage={"size": "3072Mi"})


def test_another_name_of_an_installation_is_refused_with_the_present_one(bus: Bus) -> None:
    bus.apply("hostManager")
    with pytest.raises(ChartRefusedError, match=r"nameOverride: .* set nameOverride=trellis\b"):
        bus.apply("hostManager", more={"nameOverride": "other"})


def test_a_namespace_of_installers_that_another_release_has_is_refused(
    bus: Bus, cluster_api: Api, namespace: str
) -> None:
    installers = f"{namespace}-installers"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": installers}}
    status, _ = cluster_api.call("POST", NAMESPACES.path(None), body)
    assert status == http.HTTPStatus.CREATED
    try:
        with pytest.raises(ChartRefusedError, match=r"createNamespace: .*installers\.createNamespace=false"):
            bus.apply("nodeWatcher", more={"installers": {"namespace": installers}})
    finally:
        cluster_api.call("DELETE", NAMESPACES.path(None, installers))
