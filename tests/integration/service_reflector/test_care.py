"""Objects of another owner, unknown objects and objects to delete: on a real API server."""

from __future__ import annotations

import asyncio
import http
from typing import Any

import pytest

from service_reflector.apply import Effects
from service_reflector.domain.actions import CreateService
from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis.kube.resources import ENDPOINT_SLICES, NAMESPACES, SERVICES

pytestmark = pytest.mark.cluster


def a_service(name: str, **metadata: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    selector = {names.LABEL_MANAGED_BY: names.WADM_OPERATOR}
    spec = {"ports": ports, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, **metadata}, "spec": spec}


async def warned(world: ReflectedWorld, reason: str) -> str:
    await eventually(lambda: reason in world.warnings(), f"Event {reason}", seconds=PATIENCE)
    return world.warnings()[reason]


async def test_the_service_of_another_owner_is_left_alone_and_reported(world: ReflectedWorld) -> None:
    world.group("group", "taken-lattice")
    theirs = world.hosts.call("POST", SERVICES, body=a_service("taken"))
    async with world.wadm("taken-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("taken"))
        assert f"{world.namespace}/taken" in await warned(world, "ServiceNameTaken")
        now = world.service("taken")
        assert now is not None
        assert now["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
        world.hosts.call("DELETE", SERVICES, "taken")

        def ours() -> bool:
            found = world.service("taken")
            return found is not None and names.ANNOTATION_APPLICATION in found["metadata"].get("annotations", {})

        await eventually(ours, "ours, now that the name is free", seconds=PATIENCE)


@pytest.mark.thorough
async def test_an_address_that_only_its_host_reaches_is_reported(world: ReflectedWorld) -> None:
    world.group("group", "loop-lattice")
    async with world.wadm("loop-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("loop", capability("httpserver", link("127.0.0.1:8080"), ANY_HOST)))
        assert "0.0.0.0:8080" in await warned(world, "LoopbackAddress")
        assert world.service("loop") is None


async def test_two_lattices_have_an_application_of_one_name(world: ReflectedWorld) -> None:
    world.group("one", "one-lattice")
    first = world.pod("one", "host-1")
    async with world.wadm("one-lattice") as item, world.wadm("two-lattice") as two, world.reflector():
        await item.deploy(manifest("same"))
        plain = await world.has_service("same", 8080)
        world.group("two", "two-lattice")
        second = world.pod("two", "host-2")
        await two.deploy(manifest("same"), quietly=True)

        def others() -> list[str]:
            found = world.hosts.call("GET", SERVICES)["items"]
            return [each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith("same-")]

        await eventually(others, "a second Service", seconds=PATIENCE)
        (name,) = others()
        await world.leads_to("same", first)
        await world.leads_to(name, second)
        await two.undeploy("same")
        await world.has_no_service(name)
        kept = world.service("same")
        assert kept is not None
        assert kept["metadata"]["uid"] == plain["metadata"]["uid"]
        await world.leads_to("same", first)


@pytest.mark.thorough
async def test_one_that_ends_between_a_deletion_and_making_again_costs_no_address(
    world: ReflectedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.group("group", "ends-lattice")
    address = world.pod("group", "host-1")
    real, reached = Effects._create, asyncio.Event()

    async def never(self: Effects, action: CreateService) -> None:
        if action.former is None:
            await real(self, action)
        reached.set()
        await asyncio.Event().wait()

    async with world.wadm("ends-lattice") as wadm:
        application = manifest("ends", **{names.ANNOTATION_SERVICE_TYPE: "NodePort"})
        async with world.reflector():
            await wadm.deploy(application)
            before = (await world.has_service("ends", 8080))["spec"]
            await world.leads_to("ends", address)
        monkeypatch.setattr(Effects, "_create", never)
        async with world.reflector(shutdown_grace_period=2):
            world.hosts.call("DELETE", SERVICES, "ends")
            async with asyncio.timeout(PATIENCE):
                await reached.wait()
        assert world.service("ends") is None, "it ended before one was made"
        monkeypatch.setattr(Effects, "_create", real)
        second = world.pod("group", "host-2")
        async with world.reflector():
            after = (await world.has_service("ends", 8080))["spec"]
            assert after["clusterIP"] == before["clusterIP"]
            assert after["ports"][0]["nodePort"] == before["ports"][0]["nodePort"]
            await world.leads_to("ends", address, second)
            assert world.belong_to("ends", await world.has_service("ends", 8080))
            # The same once more, and undeployed before anybody leads again: what was kept goes.
            reached.clear()
            monkeypatch.setattr(Effects, "_create", never)
            world.hosts.call("DELETE", SERVICES, "ends")
            async with asyncio.timeout(PATIENCE):
                await reached.wait()
        await wadm.undeploy("ends", quietly=True)
        assert world.slices("ends")
        async with world.reflector():
            await eventually(lambda: not world.slices("ends"), "nothing is left", seconds=PATIENCE)
            assert world.service("ends") is None


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "while it does not run"])
async def test_a_service_that_is_deleted_is_created_again_with_its_addresses(
    world: ReflectedWorld, running: bool
) -> None:
    world.group("group", "deleted-lattice")
    address = world.pod("group", "host-1")
    async with world.wadm("deleted-lattice") as wadm:
        async with world.reflector():
            await wadm.deploy(manifest("deleted"))
            before = await world.has_service("deleted", 8080)
            await world.leads_to("deleted", address)
            if running:
                world.hosts.call("DELETE", SERVICES, "deleted")
                await eventually(lambda: is_another(world, before), "another one", seconds=PATIENCE)
        if not running:
            world.hosts.call("DELETE", SERVICES, "deleted")
            assert world.service("deleted") is None, "nothing holds it"
        second = world.pod("group", "host-2")
        async with world.reflector():
            await eventually(lambda: is_another(world, before), "another one", seconds=PATIENCE)
            after = await world.has_service("deleted", 8080)
            assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
            await world.leads_to("deleted", address, second)
            await eventually(lambda: world.belong_to("deleted", after), "its slices are of it", seconds=PATIENCE)


@pytest.mark.parametrize("end", ["lives", "is deleted", "is undeployed"])
async def test_a_service_that_a_former_version_holds_by_a_finalizer(world: ReflectedWorld, end: str) -> None:
    world.group("group", "former-lattice")
    address = world.pod("group", "host-1")
    async with world.wadm("former-lattice") as wadm:
        async with world.reflector():
            await wadm.deploy(manifest("former"))
            before = await world.has_service("former", 8080)
            await world.leads_to("former", address)
        uid, finalizers = before["metadata"]["uid"], [names.WASMCLOUD_OPERATOR_SERVICE]
        world.hosts.call("PATCH", SERVICES, "former", {"metadata": {"finalizers": finalizers}})
        owner = {"apiVersion": "v1", "kind": "Service", "name": "former", "uid": uid}
        owned = {"annotations": {names.ANNOTATION_PRESERVED: None}, "ownerReferences": [owner]}
        for piece in world.slices("former"):
            world.hosts.call("PATCH", ENDPOINT_SLICES, piece["metadata"]["name"], {"metadata": owned})
        if end == "is deleted":
            world.hosts.call("DELETE", SERVICES, "former")
        if end == "is undeployed":
            await wadm.undeploy("former", quietly=True)
        async with world.reflector():
            if end == "is undeployed":
                await world.has_no_service("former")
                await eventually(lambda: not world.slices("former"), "no endpoints are left", seconds=PATIENCE)
                return
            await eventually(lambda: is_free(world, "former"), "no finalizer holds it", seconds=PATIENCE)
            after = await world.has_service("former", 8080)
            assert (after["metadata"]["uid"] == uid) is (end == "lives")
            assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
            await world.leads_to("former", address)
            await eventually(lambda: world.belong_to("former", after), "its endpoints are its own", seconds=PATIENCE)


def is_free(world: ReflectedWorld, name: str) -> bool:
    """Say whether there is a Service that no finalizer holds."""
    found = world.service(name)
    return found is not None and not found["metadata"].get("finalizers")


def is_another(world: ReflectedWorld, former: dict[str, Any]) -> bool:
    """Say whether there is a Service of a name that is not the former one."""
    now = world.service(former["metadata"]["name"])
    return now is not None and now["metadata"]["uid"] != former["metadata"]["uid"]


async def test_a_service_of_the_peer_is_adopted(world: ReflectedWorld) -> None:
    world.group("group", "adopt-lattice")
    address = world.pod("group", "host-1")
    labels = {names.LABEL_MANAGED_BY: names.WADM_OPERATOR, names.LABEL_NAME: "adopt"}
    body = a_service("adopt", labels=labels, finalizers=[names.WASMCLOUD_OPERATOR_SERVICE])
    theirs = world.hosts.call("POST", SERVICES, body=body)
    await eventually(lambda: world.slices("adopt"), "endpoints of Kubernetes' own controller", seconds=PATIENCE)
    async with world.wadm("adopt-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("adopt"))

        def adopted() -> bool:
            found = world.service("adopt")
            assert found is not None
            owners = {each["metadata"]["labels"][names.LABEL_SLICE_MANAGED_BY] for each in world.slices("adopt")}
            annotations = found["metadata"].get("annotations", {})
            return (
                "selector" not in found["spec"]
                and owners == {names.SLICE_MANAGED_BY}
                and names.ANNOTATION_LATTICE in annotations
                and names.ANNOTATION_ADOPTING not in annotations
            )

        await eventually(adopted, "it is ours", seconds=PATIENCE)
        now = world.service("adopt")
        assert now is not None
        assert now["metadata"]["uid"] == theirs["metadata"]["uid"]
        assert now["spec"]["clusterIP"] == theirs["spec"]["clusterIP"]
        await world.leads_to("adopt", address)


@pytest.mark.thorough
async def test_a_namespace_can_go(world: ReflectedWorld) -> None:
    world.group("group", "going-lattice")
    async with world.wadm("going-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("going"))
        await world.has_service("going", 8080)
        api = world.hosts.api
        assert api.call("DELETE", NAMESPACES.path(None, world.namespace))[0] == http.HTTPStatus.OK
        await eventually(lambda: world.service("going") is None, "the Service is let go", seconds=PATIENCE)


async def test_an_uninstallation_removes_finalizers(world: ReflectedWorld) -> None:
    world.group("group", "let-lattice")
    address = world.pod("group", "host-1")
    async with world.wadm("let-lattice") as wadm:
        async with world.reflector():
            await wadm.deploy(manifest("let"))
            await world.has_service("let", 8080)
            await world.leads_to("let", address)
        world.hosts.call("PATCH", SERVICES, "let", {"metadata": {"finalizers": [names.WASMCLOUD_OPERATOR_SERVICE]}})
        async with world.reflector(remove_finalizers=True):

            def owned() -> bool:
                return all(item["metadata"].get("ownerReferences") for item in world.slices("let"))

            await eventually(lambda: is_free(world, "let"), "no finalizer holds it", seconds=PATIENCE)
            await eventually(owned, "its slices go with it", seconds=PATIENCE)
            await world.leads_to("let", address)
        world.hosts.call("DELETE", SERVICES, "let")
        await world.has_no_service("let")
        await eventually(lambda: not world.slices("let"), "Kubernetes collects its slices", seconds=PATIENCE)


@pytest.mark.thorough
async def test_endpoints_are_the_hosts_that_meet_the_requirements(world: ReflectedWorld) -> None:
    world.group("group", "zone-lattice")
    spread = {"type": "spreadscaler", "properties": {"spread": [{"name": "a", "requirements": {"zone": "b"}}]}}
    world.pod("group", "host-a", zone="a")
    fits = world.pod("group", "host-b", zone="b")
    async with world.wadm("zone-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("zone", capability("httpserver", link(), spread)))
        await world.has_service("zone", 8080)
        await world.leads_to("zone", fits)


async def test_an_endpoint_slice_that_a_user_deletes_comes_back(world: ReflectedWorld) -> None:
    world.group("group", "slice-lattice")
    address = world.pod("group", "host-1")
    async with world.wadm("slice-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("slice"))
        await world.has_service("slice", 8080)
        await world.leads_to("slice", address)
        (piece,) = world.slices("slice")
        world.hosts.call("DELETE", ENDPOINT_SLICES, piece["metadata"]["name"])

        def again() -> bool:
            found = world.slices("slice")
            return bool(found) and found[0]["metadata"]["uid"] != piece["metadata"]["uid"]

        await eventually(again, "it is made again", seconds=PATIENCE)
        await world.leads_to("slice", address)
