"""Three real nodes: a network between their pods, and what becomes of it when one reboots or is cut off."""

from __future__ import annotations

from typing import Any

import pytest

from support.nodes.real_nodes import Kubectl, eventually, pod
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.realnode_faults import cut_off, heal, reboot, run_in

CLUSTER = "three_nodes"
SERVE = "echo served by $(hostname) > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"


@pytest.fixture(scope="module")
def web(three_nodes: ClusterInfo) -> str:
    """A web server on real-0, and a Service before it; returns the server's address."""
    kubectl = Kubectl(three_nodes)
    server = pod("web", SERVE, "real-0")
    server["spec"]["restartPolicy"] = "Always"
    kubectl.create(server)
    ports = [{"port": 80, "targetPort": 8080}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    kubectl.create({**service, "spec": {"selector": {"app": "web"}, "ports": ports}})
    return kubectl.running("web")


def fetch(kubectl: Kubectl, name: str, url: str, node: str) -> str:
    # `timeout`, because this wget's own -T makes it crash.
    tries = " ".join(map(str, range(20)))
    script = f"for try in {tries}; do timeout 3 wget -qO - {url} && exit; sleep 0.5; done; exit 1"
    kubectl.create(pod(name, script, node))
    return kubectl.ended(name)


@pytest.mark.parametrize("node", ["real-0", "real-1", "real-2"])
def test_a_pod_is_reached_from_every_node_by_address_service_and_name(kubectl: Kubectl, web: str, node: str) -> None:
    service = kubectl.get("service", "web")["spec"]["clusterIP"]
    urls = {
        "address": f"http://{web}:8080/",
        "service": f"http://{service}/",
        "name": "http://web.default.svc.cluster.local/",
    }
    for by, url in urls.items():
        assert fetch(kubectl, f"fetch-{by}-{node}", url, node) == "served by web\n", by


def test_a_pod_reaches_the_api_server(kubectl: Kubectl) -> None:
    script = "nc -w 5 kubernetes.default.svc.cluster.local 443 </dev/null && echo reached"
    kubectl.create(pod("reaches", script, "real-2"))
    assert kubectl.ended("reaches") == "reached\n"


def test_nothing_leaves_the_machine(three_nodes: ClusterInfo) -> None:
    routes = run_in(three_nodes.name, "real-0", ["ip", "route"]).stdout
    assert "default" not in routes


def test_a_rebooted_node_comes_back_with_its_pods(three_nodes: ClusterInfo, kubectl: Kubectl, web: str) -> None:
    assert web
    before = kubectl.get("node", "real-0")["status"]["nodeInfo"]["bootID"]
    reboot(three_nodes.name, "real-0")
    eventually(
        lambda: kubectl.get("node", "real-0")["status"]["nodeInfo"]["bootID"] != before, "the node has booted again"
    )
    eventually(lambda: restarts(kubectl, "web") == 1, "its pod runs again")
    eventually(lambda: kubectl.ready("real-0") == "True", "the node is Ready")
    address = kubectl.running("web")
    assert fetch(kubectl, "fetch-after-reboot", f"http://{address}:8080/", "real-1") == "served by web\n"


def test_a_node_that_is_cut_off_is_unknown_goes_on_and_comes_back(three_nodes: ClusterInfo, kubectl: Kubectl) -> None:
    kubectl.create(pod("works-on", "while :; do date >> /tmp/beats; sleep 1; done", "real-2"))
    kubectl.running("works-on")
    started = running_since(kubectl, "works-on")
    cut_off(three_nodes.name, "real-2")
    try:
        eventually(lambda: kubectl.ready("real-2") == "Unknown", "the cut node is Unknown", 150)
        assert kubectl.ready("real-1") == "True"
        ping = run_in(
            three_nodes.name, "real-1", ["busybox", "ping", "-c", "1", "-W", "1", three_nodes.real_nodes[2].address]
        )
        assert ping.returncode == 1
    finally:
        heal(three_nodes.name, "real-2")
    eventually(lambda: kubectl.ready("real-2") == "True", "the healed node is Ready", 150)
    assert running_since(kubectl, "works-on") == started


def restarts(kubectl: Kubectl, name: str) -> int:
    statuses: list[dict[str, Any]] = kubectl.get("pod", name)["status"].get("containerStatuses", [])
    return sum(status["restartCount"] for status in statuses if "running" in status["state"])


def running_since(kubectl: Kubectl, name: str) -> str:
    (status,) = kubectl.get("pod", name)["status"]["containerStatuses"]
    started: str = status["state"]["running"]["startedAt"]
    return started
