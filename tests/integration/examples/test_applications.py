"""deploy/examples/hello and secret: what they are reaches wadm and has a Service; to apply it again changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from support.examples.applied_examples import Kubectl
from support.examples.folders import manifest
from support.lattices.reflected import ReflectedWorld
from support.wadm.application_world import ApplicationWorld
from support.wadm.wadm_stand_in import WadmStandIn
from trellis.kube.resources import APPLICATIONS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.mark.thorough
@pytest.mark.parametrize(("folder", "port"), [("hello", 8080), ("secret", 8081)])
async def test_the_application_is_in_wadm_and_has_its_service(
    folder: str, port: int, apps: ApplicationWorld, kubectl: Kubectl, nats_server: NatsServer
) -> None:
    name = str(manifest(folder, "Application")["metadata"]["name"])
    world = ReflectedWorld(apps.hosts, nats_server)
    async with WadmStandIn(nats_server.url, apps.lattice):
        async with apps.manager():
            kubectl.apply(folder)
            await apps.synced(name)
        async with world.reflector():
            await world.has_service(name, port)
        world.clean_up()
        async with apps.manager():
            await asyncio.to_thread(kubectl.delete, folder)
            await apps.deleted(name)


@pytest.mark.thorough
async def test_argo_cd_applies_the_application_again_and_changes_nothing(
    apps: ApplicationWorld, kubectl: Kubectl, nats_server: NatsServer
) -> None:
    argo = ("--server-side", "--field-manager=argocd-controller")
    async with WadmStandIn(nats_server.url, apps.lattice), apps.manager():
        kubectl.apply("hello", *argo)
        first = await apps.synced("hello")
        kubectl.apply("hello", *argo)
        found = apps.hosts.call("GET", APPLICATIONS, "hello")
        assert found["metadata"]["generation"] == first["metadata"]["generation"]
