"""A real control plane: what the cluster fixture, the demo and every other integration test rely on."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.suite.tiers import first_of
from trellis_dev.localcluster import (
    ClusterInfo,
    LocalClusterError,
    down,
    kill,
    local_cluster,
    owned_cluster,
    restart,
    status,
    up,
)
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nodes import create_nodes, node_name, ready_nodes
from trellis_dev.localcluster.paths import Layout

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

FAIL_ON_ONE_NODE = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: fail-on-node-0001
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: .spec.nodeName, operator: In, values: [node-0001]}
  weight: 1
  next:
    statusTemplate: |
      phase: Failed
"""


def eventually(check: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def job(name: str, namespace: str, node: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/none"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "backoffLimit": 0,
            "template": {"spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container]}},
        },
    }


def test_kubectl_reaches_the_cluster_and_its_files_are_private(cluster: ClusterInfo) -> None:
    answer = subprocess.run(
        [cluster.bin_dir / "kubectl", "--kubeconfig", cluster.kubeconfig, "version", "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout)["serverVersion"]["gitVersion"].startswith("v1.36.")
    root = cluster.kubeconfig.parent
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    for secret in (cluster.kubeconfig, *(path for path in (root / "pki").iterdir() if path.is_file())):
        assert stat.S_IMODE(secret.stat().st_mode) & 0o077 == 0, secret


@pytest.mark.thorough
def test_the_audit_log_has_writes_and_no_reads_but_of_the_services_accounts(
    cluster: ClusterInfo, cluster_api: Api, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "audited"}}
    assert cluster_api.call("POST", path, manifest)[0] == 201
    assert cluster_api.call("GET", f"{path}/audited")[0] == 200
    assert cluster.audit_log is not None
    entries = [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]
    ours = [entry["verb"] for entry in entries if entry.get("objectRef", {}).get("name") == "audited"]
    assert ours == ["create"]
    accounts = "system:serviceaccounts:trellis-system"
    others = {entry["verb"] for entry in entries if accounts not in entry["user"].get("groups", ())}
    assert others.isdisjoint({"get", "list", "watch"})


def test_simulated_nodes_become_ready_and_keep_the_runtime_handlers_a_test_sets(cluster_api: Api) -> None:
    name = "handlers.example.com"
    create_nodes(cluster_api, [name])
    try:
        eventually(lambda: name in ready_nodes(cluster_api))
        handlers = {"status": {"runtimeHandlers": [{"name": "spin"}]}}
        # A patch: other controllers also write the Node, so a replacement can conflict.
        assert cluster_api.call("PATCH", f"/api/v1/nodes/{name}/status", handlers)[0] == 200
        _, node = cluster_api.call("GET", f"/api/v1/nodes/{name}")
        assert [handler["name"] for handler in node["status"]["runtimeHandlers"]] == ["spin"]
    finally:
        cluster_api.call("DELETE", f"/api/v1/nodes/{name}")


@pytest.mark.thorough
def test_kwok_watches_and_does_not_poll() -> None:
    """The server must not end kwok's watches with an error, as it does when etcd lacks what they need."""
    with owned_cluster(nodes=1) as own:  # of its own: where a test restarts the API server, watches do end
        assert "watch ended with error" not in (own.kubeconfig.parent / "logs" / "kwok.log").read_text()


@pytest.fixture(scope="module")
def named() -> Iterator[ClusterInfo]:
    """A cluster brought up and down as the command line does."""
    name = f"test-{os.getpid()}"
    yield up(name, nodes=2, kwok_stages=[FAIL_ON_ONE_NODE])
    down(name)


@pytest.mark.thorough
def test_jobs_complete_except_where_a_stage_makes_them_fail(named: ClusterInfo) -> None:
    api = Api.of_kubeconfig(named.kubeconfig)
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    for index in (0, 1):
        assert api.call("POST", jobs, job(f"job-{index}", "default", node_name(index)))[0] == 201

    def conditions(name: str) -> set[str]:
        answer = api.call("GET", f"{jobs}/{name}")[1]
        return {entry["type"] for entry in answer["status"].get("conditions", []) if entry["status"] == "True"}

    eventually(lambda: "Complete" in conditions("job-0"))
    eventually(lambda: "Failed" in conditions("job-1"))
    api.close()


def test_up_of_a_running_cluster_returns_the_same_and_adds_nodes(named: ClusterInfo) -> None:
    assert up(named.name) == named
    assert up(named.name, nodes=3) == named
    api = Api.of_kubeconfig(named.kubeconfig)
    assert ready_nodes(api) == {node_name(index) for index in range(3)}
    api.close()


@pytest.mark.parametrize("tool", first_of(["etcd", "nats-server", "kube-apiserver"]))
def test_a_killed_component_comes_back_on_its_ports_with_its_data(named: ClusterInfo, tool: str) -> None:
    before = named.pids[tool] if tool in status(named.name)[0].pids else None
    kill(named.name, tool)
    assert tool not in status(named.name)[0].pids

    after = restart(named.name, tool)

    assert after.nats_url == named.nats_url
    assert after.pids[tool] != before
    api = Api.of_kubeconfig(named.kubeconfig)
    eventually(lambda: api.ok("/api/v1/nodes/node-0000"))
    api.close()


def test_up_starts_what_has_ended(named: ClusterInfo) -> None:
    kill(named.name, "kwok")
    again = up(named.name)
    assert psutil.pid_exists(again.pids["kwok"])


def test_a_component_can_be_frozen(named: ClusterInfo) -> None:
    kill(named.name, "nats-server", signal.SIGSTOP)
    pid = status(named.name)[0].pids["nats-server"]
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    kill(named.name, "nats-server", signal.SIGCONT)


@pytest.mark.thorough
async def test_a_cluster_of_a_block_ends_with_the_block() -> None:
    async with local_cluster() as info:
        assert all(map(psutil.pid_exists, info.pids.values()))
        assert [found.name for found in status(info.name)] == [info.name]
    assert not any(map(psutil.pid_exists, info.pids.values()))
    assert not Layout.of(info.name).root.exists()


def test_faults_name_the_cluster_and_the_component(named: ClusterInfo) -> None:
    with pytest.raises(LocalClusterError, match="'nowhere'"):
        kill("nowhere", "etcd")
    with pytest.raises(LocalClusterError, match=f"'{named.name}' .* jaeger: .*etcd"):
        restart(named.name, "jaeger")


def test_down_of_nothing_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert down("nothing") is False


def test_a_connection_that_is_used_after_a_close_is_closed_by_the_next(cluster: ClusterInfo) -> None:
    api = Api.of_kubeconfig(Path(cluster.kubeconfig))
    for _ in range(2):
        assert api.ok("/readyz")
        api.close()
        assert api._local.connection.sock is None
