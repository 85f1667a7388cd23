"""Shims beside SpinKube: applications run on verified nodes, samples of runtime-class-manager are as the page says."""

from __future__ import annotations

import copy
import http
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.nodes.fleet import SHIMS, Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import CLASSES, Shim
from support.operators.spin_operator import (
    GROUP,
    SAMPLES,
    deployment_of,
    ensure_spinkube_served,
    operator_deployment,
)
from support.suite.pages import DOCS
from trellis import names
from trellis.provisioning.shim_status import OTHER_CONTROLLER

pytestmark = pytest.mark.cluster

SPIN, WASMTIME = "sample_shim_spin.yaml", "sample_shim_wasmtime.yaml"
CLASS = "wasmtime-spin-v2"
PAGE = (DOCS / "spinkube.md").read_text(encoding="utf-8")


def of_page(name: str) -> Manifest:
    """Return an object of the page."""
    [found] = re.findall(rf"^ *```yaml {name}\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE)
    manifest: Manifest = yaml.safe_load(textwrap.dedent(found))
    return manifest


class SpinKube:
    """The objects of a user of SpinKube in one test's cluster, and those that spin-operator creates from them."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._made: list[str] = []

    def create(self, path: str, manifest: Manifest) -> Manifest:
        """Create an object as it is; it is deleted after the test."""
        status, answer = self.fleet.api.call("POST", path, manifest)
        assert status == http.HTTPStatus.CREATED, answer
        self._made.append(f"{path}/{answer['metadata']['name']}")
        return answer

    def shim(self, manifest: Manifest) -> Shim:
        """Apply a Shim, which the API server has to store as it is."""
        stored = self.create(SHIMS, manifest)
        assert stored["spec"] == manifest["spec"]
        assert stored["metadata"].get("labels") == manifest["metadata"].get("labels")
        shim = Shim(self.fleet)
        shim.name, shim.handler = manifest["metadata"]["name"], manifest["spec"]["runtimeClass"]["handler"]
        return shim

    def run(self, app: Manifest, executor: Manifest) -> None:
        """Create an executor and an application, and the Deployment that spin-operator makes of it."""
        place = f"{GROUP}/namespaces/{self.fleet.system}"
        made = self.create(f"{place}/spinappexecutors", executor)
        stored = self.create(f"{place}/spinapps", app)
        deployment = deployment_of(stored, made)
        self.create(f"/apis/apps/v1/namespaces/{self.fleet.system}/deployments", deployment)

    def pods(self, app: str) -> list[Manifest]:
        """Return the pods of an application."""
        path = f"/api/v1/namespaces/{self.fleet.system}/pods?labelSelector=core.spinkube.dev%2Fapp-name%3D{app}"
        return list(self.fleet.api.call("GET", path)[1].get("items", []))

    def running_on(self, app: str) -> list[str]:
        """Return the nodes on which pods of an application run."""
        return [pod["spec"]["nodeName"] for pod in self.pods(app) if pod["status"].get("phase") == "Running"]

    def clear(self) -> None:
        """Delete what was made, also Shims that no provisioner waits for."""
        for path in reversed(self._made):
            if path.startswith(SHIMS):
                self.fleet.api.call("PATCH", path, {"metadata": {"finalizers": None}})
            self.fleet.api.call("DELETE", path)
        self.fleet.api.call("DELETE", f"{CLASSES}/{CLASS}")


@pytest.fixture
def spinkube(fleet: Fleet, shim: Shim) -> Iterator[SpinKube]:
    """SpinKube's kinds and those of Trellis are served."""
    del shim  # its kind is served
    ensure_spinkube_served(fleet.api)
    made = SpinKube(fleet)
    yield made
    made.clear()


def labelled(fleet: Fleet, **labels: str) -> str:
    """Create a node with labels of a user."""
    [node] = fleet.add("node", opted_in=False)
    fleet.patch(node, {"metadata": {"labels": labels}})
    return node


def runtime_class(fleet: Fleet, name: str = CLASS) -> dict[str, Any]:
    return fleet.api.call("GET", f"{CLASSES}/{name}")[1]


async def gone(shim: Shim) -> None:
    shim.delete()
    await eventually(lambda: shim.found() is None, f"{shim.name} is gone", seconds=60)


async def test_an_application_of_the_page_runs_on_tainted_nodes_with_the_runtime(
    fleet: Fleet, spinkube: SpinKube
) -> None:
    node, other = labelled(fleet, spin="true", pool="wasm"), labelled(fleet, spin="true")
    for each in (node, other):
        fleet.patch(each, {"spec": {"taints": [{"key": "dedicated", "value": "wasm", "effect": "NoSchedule"}]}})
    manifest = of_page("shim")
    manifest["spec"]["runtimeClass"] = of_page("placement")["spec"]["runtimeClass"]
    place = f"/apis/apps/v1/namespaces/{fleet.system}/deployments"
    async with fleet.services(), kubelets(fleet):
        shim = spinkube.shim(manifest)
        await eventually(shim.observed, "the services run", seconds=60)
        spinkube.create(place, operator_deployment())
        spinkube.run(of_page("app"), of_page("executor"))
        await eventually(lambda: spinkube.running_on("hello") == [node], "the application runs", seconds=90)
        await eventually(lambda: shim.has(other), "the other node is verified, too", seconds=60)
        assert shim.condition(OTHER_CONTROLLER) == ("", ""), "spin-operator stays"
        [pod] = spinkube.pods("hello")
        assert pod["spec"]["nodeSelector"] == {CLASS: names.SHIM_PROVISIONED, "pool": "wasm"}
        assert "dedicated" in {item.get("key") for item in pod["spec"]["tolerations"]}
        fleet.api.call("PATCH", f"{place}/hello", {"spec": {"replicas": 0}})
        await eventually(lambda: not spinkube.pods("hello"), "no pod is left", seconds=60)
        await gone(shim)


async def test_the_spin_sample_is_installed_unchanged_and_no_other_shim_takes_its_label(
    fleet: Fleet, spinkube: SpinKube
) -> None:
    node = labelled(fleet, spin="true")
    async with fleet.services(), kubelets(fleet):
        shim = spinkube.shim(SAMPLES[SPIN])
        await eventually(lambda: shim.has(node), "the sample is installed", seconds=60)
        await eventually(lambda: "scheduling" in runtime_class(fleet), "its RuntimeClass")
        assert (runtime_class(fleet)["handler"], runtime_class(fleet)["scheduling"]) == (
            "spin-v2",
            {"nodeSelector": {"spin-v2": names.SHIM_PROVISIONED}},
        )
        another = copy.deepcopy(of_page("shim"))
        another["metadata"]["name"] = another["spec"]["runtimeClass"]["name"] = "spin"
        another["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
        second = spinkube.shim(another)
        conflict = ("True", "LabelConflict")
        await eventually(lambda: second.condition("Degraded") == conflict, "its label would remove the first")
        assert (fleet.labels(node)["spin"], shim.has(node)) == ("true", True)
        await gone(second)
        await gone(shim)


async def test_the_wasmtime_sample_is_refused_until_it_has_checksums(fleet: Fleet, spinkube: SpinKube) -> None:
    node = labelled(fleet, wasmtime="true")
    async with fleet.services(), kubelets(fleet):
        shim = spinkube.shim(SAMPLES[WASMTIME])
        await eventually(lambda: shim.condition("Degraded") == ("True", "ChecksumMissing"), "a checksum is missing")
        assert "sha256" in shim.message("Degraded")
        assert not fleet.jobs()
        strategy = copy.deepcopy(SAMPLES[WASMTIME]["spec"]["fetchStrategy"])
        for platform in strategy["platforms"]:
            platform["sha256"] = "ab" * 32
        patch = {"spec": {"fetchStrategy": strategy, "verify": {"canary": False}}}
        assert fleet.api.call("PATCH", f"{SHIMS}/{shim.name}", patch)[0] == http.HTTPStatus.OK
        await eventually(lambda: shim.has(node), "it is installed", seconds=60)
        await gone(shim)


@pytest.mark.parametrize("handler", ["spin", "spin-v2"])
async def test_the_runtime_class_of_spin_operators_manifests_is_taken_over_or_in_conflict(
    fleet: Fleet, spinkube: SpinKube, handler: str
) -> None:
    by_hand = {"metadata": {"name": CLASS, "labels": {"team": "a"}}, "handler": "spin"}
    uid = spinkube.create(CLASSES, by_hand)["metadata"]["uid"]
    manifest = of_page("shim") if handler == "spin" else SAMPLES[SPIN]
    async with fleet.services(), kubelets(fleet):
        shim = spinkube.shim(manifest)
        selector = {shim.name: names.SHIM_PROVISIONED}
        if handler != "spin":
            conflict = ("True", "RuntimeClassConflict")
            await eventually(lambda: shim.condition("Degraded") == conflict, "it has another handler")
            assert "'spin'" in shim.message("Degraded")
            assert "scheduling" not in runtime_class(fleet)
            fleet.api.call("DELETE", f"{CLASSES}/{CLASS}")
        await eventually(lambda: "scheduling" in runtime_class(fleet), "it selects verified nodes")
        found = runtime_class(fleet)
        assert (found["handler"], found["scheduling"]["nodeSelector"]) == (handler, selector)
        assert (found["metadata"]["uid"] == uid) is (handler == "spin")
        assert ("team" in found["metadata"]["labels"]) is (handler == "spin")
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "no conflict any more")
        await gone(shim)
