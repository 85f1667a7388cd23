"""Workloads of Wasm pods on a real API server and bus: running, failed, recovered, Warning Events, traces, restarts."""

from __future__ import annotations

import asyncio
import http
from dataclasses import replace
from typing import Any

import pytest

from provisioner.timings import WorkloadTimings
from support.nodes.fleet import SHORT, Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim
from trellis.bus.streams.tail import TailedEvent
from trellis.kube.resources import DEPLOYMENTS, EVENTS, JOBS, PODS

pytestmark = pytest.mark.cluster

QUICK = replace(
    SHORT, workloads=WorkloadTimings(settle=0.05, classes=0.2, look=0.5, patience=2.0, steady=0.5, publish=0.2)
)


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
        async with asyncio.timeout(90):
            while await self.published() != sorted(wanted):  # noqa: ASYNC110 - the condition asks a server
                await asyncio.sleep(0.2)

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
