"""Applications become Services: from wadm's word to endpoints, on a real API server."""

from __future__ import annotations

import pytest

from support.fleet import eventually
from support.host_world import PATIENCE
from support.manifests import ANY_HOST, capability, link, manifest
from support.reflected import ReflectedWorld
from trellis import names
from trellis.kube.resources import PODS, SERVICES

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


async def test_an_application_is_a_service_as_long_as_it_is_deployed(world: ReflectedWorld) -> None:
    world.group("group", "shop-lattice")
    address = world.pod("group", "host-1")
    async with world.wadm("shop-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("shop"))
        service = await world.has_service("shop", 8080)
        await world.leads_to("shop", address)
        assert service["metadata"]["finalizers"] == [names.WASMCLOUD_OPERATOR_SERVICE]
        assert service["metadata"]["labels"][names.LABEL_NAME] == "shop"
        assert service["spec"]["ports"][0]["name"] == "http"
        assert "selector" not in service["spec"]
        (piece,) = world.slices("shop")
        assert piece["metadata"]["labels"][names.LABEL_SLICE_MANAGED_BY] == names.SLICE_MANAGED_BY
        assert piece["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}]

        second = world.pod("group", "host-2")
        await world.leads_to("shop", address, second)
        world.ready("host-1", ready=False)
        await world.leads_to("shop", second)
        world.hosts.call("DELETE", PODS, "host-1")
        await eventually(lambda: len(world.slices("shop")[0]["endpoints"]) == 1, "it is gone", seconds=PATIENCE)

        await wadm.deploy(manifest("shop", capability("httpserver", link("0.0.0.0:9090"), ANY_HOST), version="v2"))
        moved = await world.has_service("shop", 9090)
        assert moved["metadata"]["uid"] == service["metadata"]["uid"]
        await eventually(lambda: world.slices("shop")[0]["ports"][0]["port"] == 9090, "the port", seconds=PATIENCE)

        await wadm.undeploy("shop")
        await world.has_no_service("shop")
        await eventually(lambda: not world.slices("shop"), "no endpoints are left", seconds=PATIENCE)


async def test_a_service_deleted_by_hand_is_made_again_with_its_addresses(world: ReflectedWorld) -> None:
    world.group("group", "kept-lattice")
    address = world.pod("group", "host-1")
    application = manifest("kept", **{names.ANNOTATION_SERVICE_TYPE: "NodePort"})
    async with world.wadm("kept-lattice") as wadm, world.reflector():
        await wadm.deploy(application)
        before = await world.has_service("kept", 8080)
        await world.leads_to("kept", address)
        world.hosts.call("DELETE", SERVICES, "kept")

        def again() -> bool:
            now = world.service("kept")
            return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(again, "it is made again", seconds=PATIENCE)
        after = await world.has_service("kept", 8080)
        assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
        assert after["spec"]["ports"][0]["nodePort"] == before["spec"]["ports"][0]["nodePort"]

        def owned() -> bool:
            pieces = world.slices("kept")
            return bool(pieces) and all(
                one["metadata"]["ownerReferences"][0]["uid"] == after["metadata"]["uid"] for one in pieces
            )

        await eventually(owned, "its endpoints are its own", seconds=PATIENCE)
        await world.leads_to("kept", address)
