"""Users copy reflected Services, and edit the marks of Services and EndpointSlices: nothing is lost by that."""

from __future__ import annotations

import http
from collections.abc import Iterator
from typing import Any

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.suite.tiers import first_of
from support.wadm.manifests import manifest
from trellis import names
from trellis.kube.resources import ENDPOINT_SLICES, EVENTS, NAMESPACES, SERVICES

pytestmark = pytest.mark.cluster


def copy_of(service: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what ``kubectl get -o yaml`` and ``kubectl apply`` make of a Service under another name."""
    kept = {key: service["metadata"][key] for key in ("labels", "annotations")}
    metadata = kept | {"name": name, "finalizers": [names.WASMCLOUD_OPERATOR_SERVICE]}  # as former versions put it on
    spec = {key: value for key, value in service["spec"].items() if key not in {"clusterIP", "clusterIPs"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


@pytest.fixture
def elsewhere(world: ReflectedWorld) -> Iterator[str]:
    """A namespace without host groups."""
    name = f"{world.namespace}-elsewhere"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert world.hosts.api.call("POST", NAMESPACES.path(), body)[0] == http.HTTPStatus.CREATED
    yield name
    world.hosts.api.call("PATCH", SERVICES.path(name, "shop"), {"metadata": {"finalizers": None}})
    world.hosts.api.call("DELETE", NAMESPACES.path(None, name))


@pytest.mark.parametrize("place", first_of(["name", "namespace"]))
async def test_a_copy_of_a_service_is_left_alone_reported_and_can_be_deleted(
    world: ReflectedWorld, elsewhere: str, place: str
) -> None:
    world.group("group", "copied-lattice")
    namespace, name = (world.namespace, "mine") if place == "name" else (elsewhere, "shop")
    path, api = SERVICES.path(namespace, name), world.hosts.api
    async with world.wadm("copied-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("shop"))
        made = await world.has_service("shop", 8080)
        status, copied = api.call("POST", SERVICES.path(namespace), copy_of(made, name))
        assert status == http.HTTPStatus.CREATED, copied

        def reported() -> bool:
            _, found = api.call("GET", EVENTS.path(namespace))
            return any(item["reason"] == "CopiedService" for item in found["items"])

        await eventually(reported, "an Event on the copy", seconds=PATIENCE)
        await wadm.undeploy("shop")
        await world.has_no_service("shop")
        now = world.service(name, namespace)
        assert now is not None
        assert now["metadata"]["resourceVersion"] == copied["metadata"]["resourceVersion"]
        api.call("DELETE", path)
        await eventually(lambda: world.service(name, namespace) is None, "it is gone", seconds=PATIENCE)


@pytest.mark.parametrize(
    "edit",
    [
        {names.ANNOTATION_APPLICATION: "cart"},
        pytest.param({names.ANNOTATION_APPLICATION: None}, marks=pytest.mark.thorough),
        pytest.param({names.ANNOTATION_REFLECTED_AS: "elsewhere/shop"}, marks=pytest.mark.thorough),
        pytest.param({names.ANNOTATION_LATTICE: "nonsense"}, marks=pytest.mark.thorough),
    ],
    ids=["another-application", "no-application", "reflected-as", "lattice"],
)
async def test_marks_of_a_service_that_are_edited_are_put_back_in_place(
    world: ReflectedWorld, edit: dict[str, str | None]
) -> None:
    world.group("group", "edited-lattice")
    async with world.wadm("edited-lattice") as wadm, world.reflector():
        for name in ("shop", "cart"):
            await wadm.deploy(manifest(name))
        await world.has_service("cart", 8080)
        before = await world.has_service("shop", 8080)
        world.hosts.call("PATCH", SERVICES, "shop", {"metadata": {"annotations": edit}})

        def restored() -> bool:
            now = world.service("shop")
            return now is not None and all(
                now["metadata"].get("annotations", {}).get(key) == before["metadata"]["annotations"][key]
                for key in edit
            )

        await eventually(restored, "the annotation is put back", seconds=PATIENCE)
        now = await world.has_service("shop", 8080)
        assert now["metadata"]["uid"] == before["metadata"]["uid"]
        assert now["spec"]["clusterIP"] == before["spec"]["clusterIP"]


@pytest.mark.thorough
async def test_the_second_service_of_two_lattices_gets_its_marks_back_in_place(world: ReflectedWorld) -> None:
    world.group("one", "first-lattice")
    async with world.wadm("first-lattice") as item, world.wadm("second-lattice") as two, world.reflector():
        await item.deploy(manifest("shop"))
        await world.has_service("shop", 8080)
        world.group("two", "second-lattice")
        await two.deploy(manifest("shop"))

        def others() -> list[dict[str, Any]]:
            found = world.hosts.call("GET", SERVICES)["items"]
            return [each for each in found if each["metadata"]["name"].startswith("shop-")]

        await eventually(others, "a second Service", seconds=PATIENCE)
        [before] = others()
        name, marks = before["metadata"]["name"], before["metadata"]["annotations"]
        edit = {"metadata": {"annotations": {names.ANNOTATION_APPLICATION: "cart"}}}
        world.hosts.call("PATCH", SERVICES, name, edit)

        def restored() -> bool:
            now = (world.service(name) or {}).get("metadata", {}).get("annotations", {})
            return bool(now.get(names.ANNOTATION_APPLICATION) == marks[names.ANNOTATION_APPLICATION])

        await eventually(restored, "the annotation is put back", seconds=PATIENCE)
        [now] = others()
        assert now["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "edit",
    first_of([{names.LABEL_SERVICE_NAME: None}, {names.LABEL_SLICE_MANAGED_BY: "another"}]),
    ids=["service-name", "managed-by"],
)
async def test_labels_of_an_endpoint_slice_that_are_edited_are_put_back(
    world: ReflectedWorld, edit: dict[str, str | None]
) -> None:
    """Without the first kube-proxy finds no endpoint; without the second no watch would show the slice change."""
    world.group("group", "sliced-lattice")
    first = world.pod("group", "host-1")
    async with world.wadm("sliced-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("shop"))
        await world.leads_to("shop", first)
        [piece] = world.slices("shop")
        name, labels = piece["metadata"]["name"], piece["metadata"]["labels"]
        world.hosts.call("PATCH", ENDPOINT_SLICES, name, {"metadata": {"labels": edit}})

        def restored() -> bool:
            found = world.hosts.find(ENDPOINT_SLICES, name)
            return found is not None and found["metadata"].get("labels") == labels

        await eventually(restored, "the labels are put back", seconds=PATIENCE)
        second = world.pod("group", "host-2")
        await world.leads_to("shop", first, second)


async def test_the_endpoint_slice_of_another_that_has_the_name_is_left_alone_and_reported(
    world: ReflectedWorld,
) -> None:
    world.group("group", "strange-lattice")
    world.pod("group", "host-1")
    async with world.wadm("strange-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("shop"))
        await eventually(lambda: world.slices("shop"), "a slice", seconds=PATIENCE)
        [piece] = world.slices("shop")
        kept = {key: piece[key] for key in ("apiVersion", "kind", "addressType", "endpoints", "ports") if key in piece}
        await wadm.undeploy("shop")
        await world.has_no_service("shop")
        body = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **kept}
        name = piece["metadata"]["name"]
        await eventually(lambda: world.hosts.find(ENDPOINT_SLICES, name) is None, "it is collected", seconds=PATIENCE)
        theirs = world.hosts.call("POST", ENDPOINT_SLICES, body=body | {"metadata": {"name": name}})
        await wadm.deploy(manifest("shop"))
        await eventually(lambda: "WriteRefused" in world.warnings(), "an Event", seconds=PATIENCE)
        now = world.hosts.find(ENDPOINT_SLICES, name)
        assert now is not None
        assert now["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
