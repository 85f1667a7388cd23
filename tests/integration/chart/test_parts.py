"""A real API server takes the optional parts as they are rendered, with all their options."""

from __future__ import annotations

import http
import secrets
from pathlib import Path

import pytest

from support.chart.rendered import CHART, helm, only
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

PARTS = {
    "crds": {"install": False},
    "nats": {"enabled": False, "url": "nats://nats.example.com:4222"},
    # No pod runs here, so neither does the Job of an uninstallation.
    "uninstall": {"removeFinalizers": False},
    "services": only("secretsBackend"),
    "jaeger": {"enabled": True, "storage": {"type": "badger"}, "from": [{"namespaceSelector": {}}]},
    "collector": {
        "enabled": True,
        "endpoint": "https://otlp.example.com",
        "authorization": {"secret": "key", "key": "header"},
    },
    # Without the kinds of Prometheus' operator, which are not there.
    "monitoring": {"dashboard": {"enabled": True}},
    "latticeNats": {"enabled": True, "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "wadm": {"enabled": True},
}


def test_every_object_of_the_parts_is_one_that_the_api_server_takes(cluster: ClusterInfo, cluster_api: Api) -> None:
    namespace = f"parts-{secrets.token_hex(4)}"
    kubeconfig = Path(cluster.kubeconfig)
    try:
        options = ("--namespace", namespace, "--install", "--create-namespace", "--wait=false")
        helm("upgrade", "trellis-parts", str(CHART), *options, values=PARTS, kubeconfig=kubeconfig)
        for kind, name in (("deployments", "wadm"), ("deployments", "collector"), ("statefulsets", "jaeger")):
            status, _ = cluster_api.call("GET", f"/apis/apps/v1/namespaces/{namespace}/{kind}/trellis-{name}")
            assert status == http.HTTPStatus.OK
    finally:
        helm("uninstall", "trellis-parts", "--namespace", namespace, "--ignore-not-found", kubeconfig=kubeconfig)
        cluster_api.call("DELETE", f"/api/v1/namespaces/{namespace}")
