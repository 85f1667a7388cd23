"""Workloads of Wasm pods on a real API server and bus: running, failed, refused, recovered, traces, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import http
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.timings import WorkloadTimings
from support.cluster.validating_policies import refusing, rule
from support.nodes.fleet import SHORT, Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import CLASSES, Shim
from trellis.bus.streams.tail import TailedEvent
from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    STATEFUL_SETS,
)

pytestmark = pytest.mark.cluster

QUICK = replace(
    SHORT,
    workloads=WorkloadTimings(
        settle=0.05, classes=0.2, look=0.5, patience=2.0, refused_again=1.0, steady=0.5, publish=0.2
    ),
)
NOT_YET = "RuntimeClasses are reviewed first"


def pod_spec(shim: Shim, **spec: Any) -> Manifest:
    return {"runtimeClassName": shim.name, "containers": [{"name": "app", "image": "example.com/app"}], **spec}


def deployment(name: str, spec: Manifest) -> Manifest:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


class Workloads:
    """The owners that a test creates, in the namespace of its services."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def create(self, path: str, manifest: Manifest) -> None:
        status, answer = self.fleet.api.call("POST", path, manifest)
        assert status == http.HTTPStatus.CREATED, answer

    async def events(self) -> list[TailedEvent]:
        return [event for event in await self.fleet.events_until_now() if event.noun == "wasm_workload"]

    async def published(self) -> list[str]:
        return sorted(
            " ".join(filter(None, (event.event_name, *event.key[1:3], event.event["data"].get("reason", ""))))
            for event in await self.events()
        )

    async def until_published(self, *wanted: str) -> None:
        published: list[str] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(90):
                while (published := await self.published()) != sorted(wanted):  # noqa: ASYNC110 - it asks a server
                    await asyncio.sleep(0.2)
        assert published == sorted(wanted)

    async def until_among(self, wanted: str) -> None:
        """Wait for an event; pods can fail for a moment before, as a node gets its label after the RuntimeClass."""
        async with asyncio.timeout(90):
            while wanted not in await self.published():  # noqa: ASYNC110 - the condition asks a server
                await asyncio.sleep(0.2)

    async def forbid_pods(self) -> None:
        """Create a ResourceQuota for no pod, and wait until it is enforced."""
        quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}
        self.create(f"/api/v1/namespaces/{self.fleet.system}/resourcequotas", quota)
        bare = {"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}
        path = f"{PODS.path(self.fleet.system)}?dryRun=All"
        await eventually(lambda: self.fleet.api.call("POST", path, bare)[0] == http.HTTPStatus.FORBIDDEN, "enforced")

    def scale(self, name: str, replicas: int) -> None:
        """Change the number of pods, so that the controller retries at once."""
        path, patch = DEPLOYMENTS.path(self.fleet.system, name), {"spec": {"replicas": replicas}}
        status, answer = self.fleet.api.call("PATCH", path, patch)
        assert status == http.HTTPStatus.OK, answer

    def warnings(self, name: str) -> list[tuple[str, int]]:
        """Return reason and count of the Events of provisioner on a Deployment."""
        path = f"{EVENTS.path(self.fleet.system)}?fieldSelector=involvedObject.name%3D{name}"
        found = self.fleet.api.call("GET", path)[1]["items"]
        return [(item["reason"], item["count"]) for item in found if "provisioner" in item["source"]["component"]]


@pytest.mark.timeout(240)
async def test_workloads_are_reported_once_over_restarts(fleet: Fleet, shim: Shim) -> None:
    made = Workloads(fleet)
    [node] = shim.add_nodes(1)
    shim.apply(verify={"canary": False})
    async with kubelets(fleet):
        async with fleet.services(QUICK):
            await eventually(lambda: shim.has(node), "the Shim is installed", seconds=60)
            made.create(DEPLOYMENTS.path(fleet.system), deployment("well", pod_spec(shim)))
            made.create(
                DEPLOYMENTS.path(fleet.system), deployment("sick", pod_spec(shim, nodeSelector={"zone": fleet.id}))
            )
            job: Manifest = {
                "metadata": {"name": "once"},
                "spec": {"template": {"spec": pod_spec(shim, restartPolicy="Never")}},
            }
            job["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "nowhere"}
            made.create(JOBS.path(fleet.system), job)
            made.create(
                PODS.path(fleet.system),
                {"metadata": {"name": "other"}, "spec": {"containers": [{"name": "a", "image": "b"}]}},
            )
            first = (
                "running Deployment well",
                "failed Deployment sick NoNodeWithLabel",
                "failed Job once NoNodeWithLabel",
            )
            await made.until_published(*first)
            await eventually(lambda: made.warnings("sick"), "an Event on the Deployment")
        async with fleet.services(QUICK) as services:
            await eventually(lambda: all(item.health.readiness().ok for item in services), "ready", seconds=60)
            await asyncio.sleep(2.0)
            assert await made.published() == sorted(first)
            assert made.warnings("sick") == [("NoNodeWithLabel", 1)]
            fleet.patch(node, {"metadata": {"labels": {"zone": fleet.id}}})
            await made.until_published(*first, "recovered Deployment sick")
        async with fleet.services(QUICK) as services:
            await eventually(lambda: all(item.health.readiness().ok for item in services), "ready", seconds=60)
            await asyncio.sleep(2.0)
            assert len(await made.published()) == 4
            for path in (DEPLOYMENTS.path(fleet.system, "well"), DEPLOYMENTS.path(fleet.system, "sick")):
                fleet.api.call("DELETE", path)
            fleet.api.call("DELETE", JOBS.path(fleet.system, "once"), {"propagationPolicy": "Foreground"})
            shim.delete()
            await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
    events = {event.event_name: event.event for event in await made.events() if "sick" in event.key}
    traces = {name: event["traceparent"].split("-")[1] for name, event in events.items()}
    assert traces["failed"] == traces["recovered"], "one trace from the creation of the pod"
    assert events["failed"]["data"]["pod_uid"] == events["recovered"]["data"]["pod_uid"]
    assert events["recovered"]["data"]["reasons"] == ["NoNodeWithLabel"]
    assert events["failed"]["data"]["runtime_class"] == shim.name


@pytest.mark.timeout(240)
async def test_pods_that_the_api_server_refuses_are_reported_until_they_work(fleet: Fleet, shim: Shim) -> None:
    """A RuntimeClass is missing because a policy denies it to provisioner; a quota permits no pod."""
    made = Workloads(fleet)
    fleet.api.call("POST", NAMESPACES.path(), {"metadata": {"name": fleet.system}})
    [node] = shim.add_nodes(1)
    probe = {"metadata": {"name": shim.name}, "handler": "x"}
    denied = lambda: NOT_YET in str(fleet.api.call("POST", f"{CLASSES}?dryRun=All", probe)[1])  # noqa: E731
    only, matched = f"object.metadata.name == '{shim.name}'", rule("node.k8s.io", "runtimeclasses", "CREATE")
    missing, refused = "failed Deployment lost RuntimeClassMissing", "failed Deployment full PodsRefused"
    async with kubelets(fleet):
        async with refusing(fleet, matched, NOT_YET, only, denied):
            shim.apply(verify={"canary": False})
            made.create(DEPLOYMENTS.path(fleet.system), deployment("lost", pod_spec(shim)))
            async with fleet.services(QUICK):
                await made.until_published(missing)
                await eventually(lambda: made.warnings("lost"), "an Event on the Deployment")
            async with fleet.services(QUICK):
                await asyncio.sleep(3.0)
                assert await made.published() == [missing]
                assert made.warnings("lost") == [("RuntimeClassMissing", 1)]
        async with fleet.services(QUICK):
            await eventually(lambda: shim.runtime_class() and shim.has(node), "the RuntimeClass exists", seconds=60)
            made.scale("lost", 1)
            await made.until_among("recovered Deployment lost")
            fleet.api.call("DELETE", DEPLOYMENTS.path(fleet.system, "lost"))
            path = f"{PODS.path(fleet.system)}?labelSelector=app%3Dlost"
            await eventually(lambda: not fleet.api.call("GET", path)[1]["items"], "its pods are gone", seconds=60)
            await made.forbid_pods()
            made.create(DEPLOYMENTS.path(fleet.system), deployment("full", pod_spec(shim)))
            await made.until_among(refused)
            await eventually(lambda: made.warnings("full") == [("PodsRefused", 1)], "an Event on the Deployment")
            await asyncio.sleep(3.0)
            assert refused in await made.published()
            path = f"/api/v1/namespaces/{fleet.system}/resourcequotas/small"
            assert fleet.api.call("PATCH", path, {"spec": {"hard": {"pods": "9"}}})[0] == http.HTTPStatus.OK
            made.scale("full", 3)
            await made.until_among("recovered Deployment full")
            fleet.api.call("DELETE", DEPLOYMENTS.path(fleet.system, "full"))
            shim.delete()
            await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
    data = [event.event["data"] for event in await made.events() if event.event_name == "failed"]
    of_refused = [item for item in data if not item["pod"]]
    assert [(item["name"], item["reason"]) for item in of_refused] == [
        tuple(missing.split()[2:]),
        tuple(refused.split()[2:]),
    ]
    assert [(item["failing"], item["runtime_class"]) for item in of_refused] == [(0, shim.name)] * 2
    assert of_refused[0]["pods"] == 0
    published = await made.published()
    assert [
        published.count(item) for item in (missing, refused, "recovered Deployment lost", "recovered Deployment full")
    ] == [1] * 4


@pytest.mark.timeout(240)
async def test_each_controller_whose_pods_are_refused_is_reported(fleet: Fleet, shim: Shim) -> None:
    """The controller of a CronJob would take a minute, so its Event is written here."""
    made, zone = Workloads(fleet), {"zone": fleet.id}
    [node] = shim.add_nodes(1)
    fleet.patch(node, {"metadata": {"labels": zone}})
    shim.apply(verify={"canary": False})
    async with kubelets(fleet), fleet.services(QUICK):
        await eventually(lambda: shim.runtime_class() and shim.has(node), "the RuntimeClass exists", seconds=60)
        await made.forbid_pods()
        full = deployment("state", pod_spec(shim))
        stateful = full | {"spec": full["spec"] | {"serviceName": "state"}}
        made.create(STATEFUL_SETS.path(fleet.system), stateful)
        daemon = deployment("each", pod_spec(shim, nodeSelector=zone))
        del daemon["spec"]["replicas"]
        made.create(DAEMON_SETS.path(fleet.system), daemon)
        job = {"spec": {"template": {"spec": pod_spec(shim, restartPolicy="Never")}}}
        cron = {"metadata": {"name": "nightly"}, "spec": {"schedule": "0 4 * * *", "jobTemplate": job}}
        made.create(CRON_JOBS.path(fleet.system), cron)
        found = fleet.api.call("GET", CRON_JOBS.path(fleet.system, "nightly"))[1]
        about = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "namespace": fleet.system}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"name": "nightly.1"},
            "involvedObject": about | {"uid": found["metadata"]["uid"]},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "Error creating job: exceeded quota",
            "source": {"component": "cronjob-controller"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        made.create(EVENTS.path(fleet.system), event)
        await made.until_published(
            "failed CronJob nightly PodsRefused",
            "failed DaemonSet each PodsRefused",
            "failed StatefulSet state PodsRefused",
        )
        for kind, name in ((STATEFUL_SETS, "state"), (DAEMON_SETS, "each"), (CRON_JOBS, "nightly")):
            fleet.api.call("DELETE", kind.path(fleet.system, name))
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
