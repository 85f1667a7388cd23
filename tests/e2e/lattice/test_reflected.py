"""Real wadm and real hosts: a hundred applications become Services, and go."""

from __future__ import annotations

from support.lattices.host_behaviour import own_lattice
from support.lattices.real_lattice import RealLattice, Wadm, application, wasm_component
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.wadm.manifests import ANY_HOST, capability, link
from trellis.kube.resources import SERVICES

COUNT = 100
SECONDS = 180.0


async def test_a_hundred_applications_become_services_and_go(real_lattice: RealLattice, world: ReflectedWorld) -> None:
    lattice = own_lattice()
    world.group("group", lattice, natsClientPort=real_lattice.nats.port)
    server = capability("httpserver", link(), ANY_HOST, image="wasmcloud+builtin://http-server")
    components = (wasm_component("component", "file:///none.wasm"), server)
    wanted = {f"many-{number}" for number in range(COUNT)}

    def reflected() -> set[str]:
        return {item["metadata"]["name"] for item in world.hosts.call("GET", SERVICES)["items"]}

    world.permit_deletions()
    async with Wadm.of(real_lattice.url, lattice) as wadm, world.reflector():
        for name in sorted(wanted):
            put = await wadm.put(application(name, *components, version="v1"))
            assert put["result"] == "created", put
            assert (await wadm.deploy(name))["result"] == "acknowledged"
        await eventually(lambda: reflected() == wanted, "all are Services", seconds=SECONDS)
        half = sorted(wanted)[::2]
        for name in half:
            assert (await wadm.undeploy(name))["result"] == "acknowledged"
        await eventually(lambda: reflected() == wanted - set(half), "half of them", seconds=SECONDS)
        for name in sorted(wanted):
            await wadm.delete(name)
        await eventually(lambda: not reflected(), "none is left", seconds=SECONDS)
