"""Applications become Services: from wadm's word to endpoints, on a real API server."""

from __future__ import annotations

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis.kube.resources import PODS, SERVICES

pytestmark = pytest.mark.cluster


async def test_an_application_is_a_service_as_long_as_it_is_deployed(world: ReflectedWorld) -> None:
    world.group("group", "shop-lattice")
    address = world.pod("group", "host-1")
    async with world.wadm("shop-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("shop"))
        service = await world.has_service("shop", 8080)
        await world.leads_to("shop", address)
        assert "finalizers" not in service["metadata"]
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

        await eventually(lambda: world.belong_to("kept", after), "its endpoints are its own", seconds=PATIENCE)
        await world.leads_to("kept", address)


async def test_both_families_lead_to_a_host_that_has_both(world: ReflectedWorld) -> None:
    world.group("group", "dual-lattice")
    address, six = world.pod("group", "host-1"), "fd00:77::1"
    status = {"podIPs": [{"ip": address}, {"ip": six}]}
    world.hosts.call("PATCH", PODS, "host-1", {"status": status}, sub="status")
    async with world.wadm("dual-lattice") as wadm, world.reflector():
        for name, listens in (("dual", "[::]:8080"), ("four", "0.0.0.0:8080"), ("six", "[fd00:77::1]:8080")):
            await wadm.deploy(manifest(name, capability("httpserver", link(listens), ANY_HOST)))
        dual = await world.has_service("dual", 8080)
        assert dual["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
        assert [":" in cluster_ip for cluster_ip in dual["spec"]["clusterIPs"]] == [False, True]
        await world.leads_to("dual", address, six)
        families = [(item["addressType"], item["endpoints"][0]["addresses"]) for item in world.slices("dual")]
        assert sorted(families) == [("IPv4", [address]), ("IPv6", [six])]
        assert (await world.has_service("four", 8080))["spec"]["ipFamilies"] == ["IPv4"]
        await world.leads_to("four", address)
        assert "IPv6" in (await world.has_service("six", 8080))["spec"]["ipFamilies"]
        await world.leads_to("six", six)

        world.hosts.call("DELETE", SERVICES, "dual")

        def again() -> bool:
            now = world.service("dual")
            return now is not None and now["metadata"]["uid"] != dual["metadata"]["uid"]

        await eventually(again, "it is made again", seconds=PATIENCE)
        made = await world.has_service("dual", 8080)
        assert made["spec"]["clusterIPs"] == dual["spec"]["clusterIPs"]
        await world.leads_to("dual", address, six)
