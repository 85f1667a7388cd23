"""`trellis check`, as `helm test` runs it, on a real API server beside real services: well, then sick, by name.

Pods stand for the processes: their addresses and ports are the processes' own, as a kubelet would have reported them.
"""

from __future__ import annotations

import contextlib
import http
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chart.installed import Installation, Running, Where, bus_keys, processes
from support.chart.rendered import CHART, bus_server, helm, hooks, only
from support.cluster.grants import RBAC_KINDS, SYSTEM, Granted, granted, refused
from support.nodes.shims import Shim
from support.suite.typed import bare_environment, typed_meanwhile
from trellis.kube.resources import NAMESPACES, PODS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(420)]

RELEASE = "checked"
SERVICES = only("nodeWatcher", "provisioner")
VALUES: dict[str, Any] = {
    "crds": {"install": False},
    "nats": {"replicas": 1},
    # Pods are made by the test.
    "services": {name: its | {"replicas": 0} for name, its in SERVICES.items()},
}


def stand_in(api: Api, running: Running) -> str:
    """Make the pod of a process."""
    labels = {"app.kubernetes.io/part-of": "trellis", "app.kubernetes.io/component": running.component}
    ports = [{"name": "health", "containerPort": running.port}]
    body = {
        "metadata": {"name": f"{running.deployment}-1", "labels": labels},
        "spec": {
            # No node: no simulated kubelet has a say in its status.
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": running.component, "image": "example.com/x:1", "ports": ports}],
        },
    }
    status, answer = api.call("POST", PODS.path(SYSTEM), body)
    assert status == http.HTTPStatus.CREATED, answer
    path = PODS.path(SYSTEM, f"{running.deployment}-1", "status")
    pod_status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
    assert api.call("PATCH", path, pod_status)[0] == http.HTTPStatus.OK
    return f"{running.deployment}-1"


async def checked(account: Granted, bus: dict[str, str], *command: str) -> tuple[int, dict[str, Any], str]:
    """Run it as the account of the hook; return its status, its JSON and its output."""
    environment = {"TRELLIS_KUBECONFIG": str(account.kubeconfig), "TRELLIS_NAMESPACE": SYSTEM, **bus}
    done = await typed_meanwhile(bare_environment(**environment), *command, "-o", "json")
    return done.returncode, json.loads(done.stdout), done.stderr


def audited(cluster: ClusterInfo) -> list[dict[str, Any]]:
    assert cluster.audit_log is not None
    return [json.loads(line) for line in Path(cluster.audit_log).read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def installation(cluster: ClusterInfo, cluster_api: Api, shim: Shim) -> Iterator[Installation]:
    kubeconfig = Path(cluster.kubeconfig)
    cluster_api.call("POST", NAMESPACES.path(), {"metadata": {"name": SYSTEM}})
    values = VALUES | {"installers": {"namespace": shim.fleet.installers}}
    try:
        place = ("--namespace", SYSTEM, "--no-hooks")  # no kubelet runs the Job of one
        helm("install", RELEASE, str(CHART), *place, values=values, kubeconfig=kubeconfig)
        yield Installation(cluster_api)
    finally:
        helm("uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found", "--no-hooks", kubeconfig=kubeconfig)


@pytest.mark.thorough
async def test_all_healthy_services_are_ready_and_the_unhealthy_one_is_named(
    cluster: ClusterInfo, cluster_api: Api, installation: Installation, tmp_path: Path
) -> None:
    found = hooks("test", **VALUES)
    [pod] = [item for item in found if item["kind"] == "Pod"]
    [container] = pod["spec"]["containers"]
    command = [part for part in container["command"][1:] if not part.startswith("--timeout")]
    pods: list[str] = []
    where = Where(cluster, cluster_api, tmp_path, "")
    async with bus_keys(where, hooks("pre-install", **VALUES)) as files, contextlib.AsyncExitStack() as stack:
        account = stack.enter_context(granted(cluster, cluster_api, pod["spec"]["serviceAccountName"], tmp_path))
        server = stack.enter_context(bus_server(files, tmp_path))
        account.apply([item for item in found if item["kind"] in RBAC_KINDS])
        where.bus = server.url.split("//")[1]
        seed = installation.seeds(pod["spec"], tmp_path / "seeds-of-cli")
        bus = {"TRELLIS_NATS_URL": f"nats://{where.bus}", **seed}
        try:
            async with processes(where, installation.deployments()) as started:
                for item in started:
                    await item.ready()
                code, document, err = await checked(account, bus, *command)
                assert code == 1
                counts = {part["part"]: part.get("pods") for part in document["parts"]}
                assert (counts["node-watcher"], counts["provisioner"]) == (0, 0)
                assert "node-watcher: " in err

                pods += [stand_in(cluster_api, item) for item in started]
                code, document, err = await checked(account, bus, *command, "--timeout=30s")
                assert code == 0, err
                parts = {part["part"]: part for part in document["parts"]}
                assert set(parts) == {"kubernetes", "node-watcher", "provisioner", "bus"}
                assert all(part["ok"] for part in parts.values())

                sick = next(item for item in started if item.component == "provisioner")
                await sick.end()
                code, document, err = await checked(account, bus, *command)
                assert code == 1
                assert [part["part"] for part in document["parts"] if not part["ok"]] == ["provisioner"]
                assert "provisioner: pod trellis-provisioner-1: " in err

                server.stop()
                code, document, err = await checked(account, bus, *command)
                assert code == 1
                assert not {part["part"]: part["ok"] for part in document["parts"]}["bus"]
                assert files["cli.nk"] not in err + json.dumps(document), "no seed is shown"
        finally:
            for name in pods:
                cluster_api.call("DELETE", PODS.path(SYSTEM, name))
            cluster_api.call("DELETE", PODS.path(SYSTEM, "trellis-check"))
    assert refused(audited(cluster), account.user) == []
