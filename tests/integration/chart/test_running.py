"""The installed Deployments are complete: their commands become ready, with their accounts and users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.chart.installed import Installation, Where, bus_keys, processes
from support.chart.rendered import CHART, bus_server, helm, hooks
from support.cluster.grants import SYSTEM
from support.nodes.shims import Shim
from support.wadm.applications_kind import ApplicationsKind
from trellis.kube.resources import NAMESPACES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

RELEASE = "running"


@pytest.mark.timeout(420)
@pytest.mark.parametrize("mode", [pytest.param("services", marks=pytest.mark.thorough), "bundle"])
async def test_a_deployed_chart_becomes_ready(
    cluster: ClusterInfo, cluster_api: Api, shim: Shim, tmp_path: Path, mode: str
) -> None:
    installers, kubeconfig = shim.fleet.installers, Path(cluster.kubeconfig)
    values: dict[str, Any] = {
        "mode": mode,
        "cluster": "lab-1",
        "nats": {"replicas": 1},
        "installers": {"namespace": installers},
        "crds": {"install": False},
        "services": {"console": {"enabled": True}},
        "secrets": {"accounts": [{"namespace": "default", "serviceAccount": "reader", "secrets": ["db"]}]},
    }
    applications = ApplicationsKind(cluster_api)
    made = applications.ensure()
    cluster_api.call("POST", NAMESPACES.path(), {"metadata": {"name": SYSTEM}})
    try:
        place = ("--namespace", SYSTEM, "--no-hooks")
        helm("install", RELEASE, str(CHART), *place, values=values, kubeconfig=kubeconfig)
        where = Where(cluster, cluster_api, tmp_path, "")
        async with bus_keys(where, hooks("pre-install", **values)) as files:
            with bus_server(files, tmp_path) as server:
                where.bus = server.url.split("//")[1]
                await becomes_ready(where, mode)
    finally:
        helm("uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found", "--no-hooks", kubeconfig=kubeconfig)
        if made:
            applications.clear()


async def becomes_ready(where: Where, mode: str) -> None:
    async with processes(where, Installation(where.api).deployments()) as started:
        assert len(started) == (8 if mode == "services" else 2), "the console is apart"
        for item in started:
            await item.ready()
        for item in started:
            assert "ermission" not in item.output(), item.output()
