"""Pages of Wasm pods on a real API server with its admission, scheduler and controllers; no kubelet runs the pods."""

from __future__ import annotations

import http
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.nodes.fleet import counted, eventually
from support.suite.naming import lacking
from support.suite.typed import bare_environment, typed
from trellis.kube.resources import CRON_JOBS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PODS, RUNTIME_CLASSES, Resource
from trellis.read_model.wasm_pods.reasons import Reason
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster]

Manifest = dict[str, Any]
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
RETRIES = 90.0
"""Seconds until the controller of ReplicaSets has retried to create a pod that was refused."""


@dataclass(frozen=True)
class Place:
    """A namespace, and a RuntimeClass, a node and a label of the same name."""

    cluster: ClusterInfo
    api: Api
    name: str

    @property
    def label(self) -> dict[str, str]:
        return {f"wasm.example/{self.name}": "yes"}

    def create(self, res: Resource, name: str, **parts: Any) -> None:
        path = res.path(self.name if res.namespaced else None)
        manifest = {"apiVersion": res.api_version, "kind": res.kind, "metadata": {"name": name}, **parts}
        status, answer = self.api.call("POST", path, manifest)
        assert status == http.HTTPStatus.CREATED, answer

    def patch(self, path: str, body: Manifest) -> None:
        status, answer = self.api.call("PATCH", path, body)
        assert status == http.HTTPStatus.OK, answer

    def template(self, **spec: Any) -> Manifest:
        containers = [{"name": "app", "image": "registry.invalid/shop/hello:1"}]
        return {
            "metadata": {"labels": {"app": "hello"}},
            "spec": {"runtimeClassName": self.name, "containers": containers, **spec},
        }

    def deploy(self, name: str = "hello") -> None:
        labels = {"matchLabels": {"app": "hello"}}
        self.create(DEPLOYMENTS, name, spec={"selector": labels, "template": self.template()})

    async def explained(self, reason: Reason, thing: str = "deployment/hello", seconds: float = 30.0) -> Manifest:
        """Wait until a page has this reason; return it."""
        environment = bare_environment(KUBECONFIG=str(self.cluster.kubeconfig))
        seen: list[Any] = []

        def page() -> Manifest | None:
            done = typed(environment, "explain", thing, "-n", self.name, "-o", "json")
            found: Manifest = json.loads(done.stdout)
            seen.append(found["headline"])
            return found if found["reason"] == reason and done.returncode == 1 else None

        found: Manifest = await eventually(page, f"{thing} has {reason}: {seen}", seconds=seconds)
        return found

    def pods(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.api.call("GET", PODS.path(self.name))[1]["items"]]


@pytest.fixture
def place(cluster: ClusterInfo, cluster_api: Api) -> Iterator[Place]:
    made = Place(cluster, cluster_api, f"pods-{secrets.token_hex(4)}")
    made.create(NAMESPACES, made.name)
    yield made
    for res in (NODES, RUNTIME_CLASSES, NAMESPACES):
        cluster_api.call("DELETE", res.path(name=made.name))


async def test_a_deployment_has_the_next_cause_once_one_is_removed(place: Place) -> None:
    place.deploy()
    page = await place.explained(Reason.RUNTIME_CLASS_MISSING)
    assert lacking(page["headline"], place.name) == []

    place.create(NODES, place.name, spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})
    place.create(RUNTIME_CLASSES, place.name, handler="spin", scheduling={"nodeSelector": place.label})
    page = await place.explained(Reason.NO_NODE_WITH_LABEL, seconds=RETRIES)
    [pod] = place.pods()
    assert all(f"{name}={value}" in page["cause"] for name, value in place.label.items())
    assert lacking(page["cause"], pod) == [], "the pod belongs to the Deployment"

    place.patch(NODES.path(name=place.name), {"metadata": {"labels": place.label}})
    page = await place.explained(Reason.TAINT_NOT_TOLERATED)
    assert "gpu=yes:NoSchedule" in page["cause"]

    status = {"conditions": [{"type": "Ready", "status": "True"}], "runtimeHandlers": [{"name": "runc"}]}
    place.patch(NODES.path(name=place.name, subresource="status"), {"status": status})
    target = {"apiVersion": "v1", "kind": "Node", "name": place.name}
    place.api.call(
        "POST",
        PODS.path(place.name, pod, "binding"),
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target},
    )
    page = await place.explained(Reason.HANDLER_NOT_CONFIGURED, f"pod/{pod}")
    assert lacking(page["cause"], "spin", place.name) == []


async def test_pods_that_a_quota_refuses_have_that_cause_for_each_owner(place: Place) -> None:
    place.create(RUNTIME_CLASSES, place.name, handler="spin")
    place.create(QUOTAS, "none", spec={"hard": {"pods": "0"}})
    await counted(place.api, QUOTAS.path(place.name, "none"))
    place.deploy()
    job = {"template": place.template(restartPolicy="Never")}
    place.create(JOBS, "once", spec=job)
    place.create(CRON_JOBS, "often", spec={"schedule": "* * * * *", "jobTemplate": {"spec": job}})
    for thing, seconds in (("deployment/hello", 30.0), ("job/once", 30.0), ("cronjob/often", RETRIES)):
        page = await place.explained(Reason.PODS_REFUSED, thing, seconds)
        assert lacking(page["headline"], "none", f"`kubectl describe resourcequota -n {place.name}`") == []


async def test_a_job_that_has_failed_and_has_no_pods_has_the_reason_of_its_condition(place: Place) -> None:
    place.create(RUNTIME_CLASSES, place.name, handler="spin")
    job = {"template": place.template(restartPolicy="Never"), "activeDeadlineSeconds": 1}
    place.create(JOBS, "late", spec=job)
    page = await place.explained(Reason.JOB_FAILED, "job/late")
    assert "DeadlineExceeded" in page["cause"]
