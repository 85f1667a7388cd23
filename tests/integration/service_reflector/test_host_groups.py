"""Host groups are edited, deleted, made again, or cannot be listed: Services stay until it is known that they go."""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import service_reflector.app
import service_reflector.settings
from service_reflector.domain.ownership import Undecided
from support.cluster.api_proxy import ApiProxy
from support.cluster.crd_deletion import delete_definition, restored
from support.lattices.host_world import PATIENCE
from support.lattices.reflected import QUICK, ReflectedWorld, Wadm
from support.nodes.breakers import paused_by
from support.nodes.fleet import eventually
from support.wadm.manifests import manifest
from trellis import names
from trellis.kube.resources import EVENTS, HOST_CONFIGS, SECRETS, SERVICES
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster

APPLICATIONS = ("shop", "cart", "mail")
LONG = replace(QUICK, group_grace=3600.0)
SHORT = replace(QUICK, group_grace=2.0)


def identities(world: ReflectedWorld) -> dict[str, tuple[str, str]]:
    """Return uid and address of each Service by name."""
    found = world.hosts.call("GET", SERVICES)["items"]
    return {item["metadata"]["name"]: (item["metadata"]["uid"], item["spec"]["clusterIP"]) for item in found}


def lattice_id(world: ReflectedWorld, name: str) -> str:
    """Return the lattice that a Service names."""
    found = world.service(name)
    assert found is not None
    return str(found["metadata"]["annotations"][names.ANNOTATION_LATTICE])


def reasons(world: ReflectedWorld, kind: str) -> set[str]:
    """Return the reasons of Events on objects of a kind."""
    return {
        item["reason"] for item in world.hosts.call("GET", EVENTS)["items"] if item["involvedObject"]["kind"] == kind
    }


async def deployed(world: ReflectedWorld, wadm: Wadm) -> dict[str, tuple[str, str]]:
    """Deploy the applications; return the Services they get."""
    for name in APPLICATIONS:
        await wadm.deploy(manifest(name))
    await eventually(lambda: identities(world).keys() == {*APPLICATIONS}, "Services", seconds=PATIENCE)
    return identities(world)


async def handed_over(world: ReflectedWorld, former: str) -> None:
    """Wait until no Service names a lattice any more."""
    await eventually(
        lambda: all(lattice_id(world, name) != former for name in APPLICATIONS),
        "they are handed over",
        seconds=PATIENCE,
    )


async def looked(world: ReflectedWorld, wadm: Wadm) -> None:
    """Wait until something else that happened later was carried out: what was to be done before is done."""
    await wadm.deploy(manifest("later"))
    await world.has_service("later", 8080)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"natsAddress": "nats://localhost"}, marks=pytest.mark.thorough),
        {"secretName": "rotated"},
        pytest.param({"controlTopicPrefix": "wasmbus.ctl"}, marks=pytest.mark.thorough),
    ],
    ids=["address", "secret", "prefix"],
)
async def test_another_spelling_of_the_same_lattice_hands_its_services_over_in_place(
    world: ReflectedWorld, edit: dict[str, str]
) -> None:
    world.group("group", "spelled")
    address = world.pod("group", "host-1")
    async with world.wadm("spelled") as wadm, world.reflector(LONG):
        before = await deployed(world, wadm)
        former = lattice_id(world, "shop")
        world.hosts.change("group", **edit)
        await handed_over(world, former)
        assert identities(world) == before
        await world.leads_to("shop", address)
        # What follows belongs to the new one.
        await wadm.undeploy("shop")
        await world.has_no_service("shop")


@pytest.mark.thorough
async def test_an_address_that_never_answers_removes_nothing_and_is_reported(world: ReflectedWorld) -> None:
    world.group("group", "typo")
    first = world.pod("group", "host-1")
    async with world.wadm("typo") as wadm, world.reflector(LONG) as service:
        before = await deployed(world, wadm)
        former = lattice_id(world, "shop")
        world.hosts.change("group", natsClientPort=1)

        def reported() -> bool:
            return all(Undecided.LATTICE_UNREACHABLE in reasons(world, kind) for kind in ("Service", HOST_CONFIGS.kind))

        await eventually(reported, "Events on Service and host group", seconds=PATIENCE)
        assert any(service_reflector.app.PRESERVED in note for note in service.health.notes())
        # Endpoints follow the hosts meanwhile.
        second = world.pod("group", "host-2")
        await world.leads_to("shop", first, second)
        assert identities(world) == before
        world.hosts.change("group", natsClientPort=world.server.port)
        await looked(world, wadm)
        assert lattice_id(world, "shop") == former
        assert {name: item for name, item in identities(world).items() if name in before} == before
        await eventually(lambda: service.health.notes() == (), "nothing is noted any more", seconds=PATIENCE)


@pytest.mark.thorough
async def test_a_new_leader_reverts_edits_made_without_a_leader(world: ReflectedWorld) -> None:
    world.group("group", "leaderless")
    async with world.wadm("leaderless") as wadm:
        async with world.reflector(LONG):
            before = await deployed(world, wadm)
        former = lattice_id(world, "shop")
        world.hosts.change("group", natsAddress="nats://localhost")
        async with world.reflector(LONG):
            await handed_over(world, former)
            assert identities(world) == before


async def test_a_lattice_that_answered_that_it_lacks_an_application_ends_its_service(world: ReflectedWorld) -> None:
    world.group("group", "old-name")
    async with world.wadm("old-name") as wadm, world.wadm("new-name") as renamed, world.reflector(LONG):
        before = await deployed(world, wadm)
        for name in APPLICATIONS[:2]:
            await renamed.deploy(manifest(name), quietly=True)
        world.hosts.change("group", lattice="new-name")
        await world.has_no_service(APPLICATIONS[2])
        await handed_over_to(world, "new-name", *APPLICATIONS[:2])
        assert identities(world) == {name: before[name] for name in APPLICATIONS[:2]}


async def handed_over_to(world: ReflectedWorld, lattice: str, *wanted: str) -> None:
    """Wait until Services name a lattice."""
    await eventually(
        lambda: all(lattice_id(world, name).startswith(f"{lattice}/") for name in wanted), lattice, seconds=PATIENCE
    )


@pytest.mark.thorough
async def test_of_two_groups_one_is_edited_and_then_the_other(world: ReflectedWorld) -> None:
    for group in ("one", "two"):
        world.group(group, "both")
    world.pod("one", "host-1")
    second = world.pod("two", "host-2")
    async with world.wadm("both") as wadm, world.reflector(LONG):
        before = await deployed(world, wadm)
        former = lattice_id(world, "shop")
        world.hosts.change("one", natsAddress="nats://localhost")

        def recorded() -> bool:
            found = world.service("shop")
            assert found is not None
            return bool(found["metadata"]["annotations"][names.ANNOTATION_HOST_GROUPS] == f"{world.namespace}/two")

        await eventually(recorded, "the Service is of the other group", seconds=PATIENCE)
        assert second in world.addresses("shop")
        world.hosts.change("two", natsAddress="nats://localhost")
        await handed_over(world, former)
        assert {name: item for name, item in identities(world).items() if name in before} == before


@pytest.mark.thorough
async def test_a_group_that_is_made_again_finds_its_services(world: ReflectedWorld) -> None:
    world.group("group", "again")
    async with world.wadm("again") as wadm, world.reflector(LONG):
        before = await deployed(world, wadm)
        world.hosts.call("DELETE", HOST_CONFIGS, "group")
        await eventually(
            lambda: Undecided.GROUP_MISSING in reasons(world, "Service"), "an Event on the Service", seconds=PATIENCE
        )
        # An application that is undeployed meanwhile loses its Service at once.
        await wadm.undeploy("mail")
        await world.has_no_service("mail")
        world.group("group", "again", natsAddress="nats://localhost")
        await looked(world, wadm)
        kept = {name: before[name] for name in APPLICATIONS[:2]}
        assert {name: item for name, item in identities(world).items() if name in kept} == kept


async def test_services_of_a_missing_group_are_deleted_after_the_grace_period_across_leaders(
    world: ReflectedWorld,
) -> None:
    world.group("group", "ended")
    async with world.wadm("ended") as wadm:
        async with world.reflector(LONG):
            await deployed(world, wadm)
            world.hosts.call("DELETE", HOST_CONFIGS, "group")
        async with world.reflector(SHORT):
            for name in APPLICATIONS:
                await world.has_no_service(name)


@pytest.mark.thorough
async def test_a_service_of_a_missing_group_can_be_deleted_by_hand(world: ReflectedWorld) -> None:
    world.group("group", "by-hand")
    async with world.wadm("by-hand") as wadm, world.reflector(LONG):
        await deployed(world, wadm)
        world.hosts.call("DELETE", HOST_CONFIGS, "group")
        world.hosts.call("DELETE", SERVICES, "shop")
        await world.has_no_service("shop")
        assert identities(world).keys() == {"cart", "mail"}


@pytest.mark.thorough
async def test_a_mass_deletion_is_paused_until_a_user_permits_it(world: ReflectedWorld) -> None:
    applications = [f"app-{number}" for number in range(12)]
    world.group("group", "mass")
    async with world.wadm("mass") as wadm, world.reflector(LONG) as service:
        for name in applications:
            await wadm.deploy(manifest(name))
        await eventually(lambda: identities(world).keys() == {*applications}, "Services", seconds=PATIENCE)
        for name in applications:
            await wadm.undeploy(name)
        await eventually(lambda: "DeletionPaused" in reasons(world, "Service"), "an Event", seconds=PATIENCE)
        await eventually(lambda: len(identities(world)) == 7, "five of twelve go", seconds=PATIENCE)
        # Others go on.
        await wadm.deploy(manifest("other"))
        await world.has_service("other", 8080)
        assert len(identities(world)) == 8
        assert service.health.readiness().ok
        fleet = world.hosts.fleet
        await eventually(lambda: paused_by(fleet, "service_reflector", "services") == 7, "recorded", seconds=PATIENCE)
        for name in applications:
            await wadm.deploy(manifest(name))
        await eventually(
            lambda: paused_by(fleet, "service_reflector", "services") == 0, "open, and holds none any more"
        )


class Unserved(ApiProxy):
    """An API server that answers 404 for the paths that have a text in them."""

    paths: tuple[str, ...] = ()
    refused = 0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if any(text in request.path for text in self.paths):
            self.refused += 1
            return web.Response(status=http.HTTPStatus.NOT_FOUND, text="404 page not found\n")
        return await super()._answer(request)


@contextlib.asynccontextmanager
async def unserved(world: ReflectedWorld, tmp_path: Path, *paths: str) -> AsyncIterator[tuple[Unserved, Path]]:
    """Have a way to the API server on which these paths are not served."""
    kubeconfig = Path(world.hosts.fleet.settings()["kubeconfig"])
    async with Unserved(kubeconfig, tmp_path) as proxy:
        proxy.paths = paths
        yield proxy, proxy.kubeconfig(proxy.port, tmp_path / "unserved.yaml")


async def test_host_groups_that_are_not_served_at_the_start_are_unknown(world: ReflectedWorld, tmp_path: Path) -> None:
    world.group("group", "unserved")
    async with world.wadm("unserved") as wadm:
        async with world.reflector(LONG):
            before = await deployed(world, wadm)
        await wadm.undeploy("mail", quietly=True)
        async with (
            unserved(world, tmp_path, HOST_CONFIGS.plural) as (proxy, kubeconfig),
            world.reflector(SHORT, kubeconfig=kubeconfig) as service,
        ):
            what = f"watch {HOST_CONFIGS.plural}"

            def is_reported() -> bool:
                return any(what in reason and "Services" in reason for reason in service.health.readiness().reasons)

            await eventually(is_reported, "not ready, with the reason", seconds=PATIENCE)
            world.hosts.call("DELETE", SERVICES, "cart")
            # For longer than the grace of a group that is known to be missing.
            enough = proxy.refused + 2 + SHORT.group_grace / SHORT.watch.absent
            await eventually(lambda: proxy.refused >= enough, "host groups are asked for", seconds=PATIENCE)
            # What a user deleted is gone, and waits with its addresses for what is not known yet.
            assert identities(world) == {name: item for name, item in before.items() if name != "cart"}
            assert world.slices("cart")
            proxy.paths = ()
            await world.has_no_service("mail")
            again = await world.has_service("cart", 8080)
            assert again["spec"]["clusterIP"] == before["cart"][1]
            await eventually(lambda: service.health.readiness().ok, "ready", seconds=PATIENCE)
            assert identities(world)["shop"] == before["shop"]


async def explained(world: ReflectedWorld, name: str) -> dict[str, Any]:
    """Return what `trellis explain` says of a Service."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trellis_cli", "explain", f"service/{name}", "-n", world.hosts.namespace, "-o", "json",
        env={**os.environ, **world.hosts.fleet.environment()}, stdout=PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    document: dict[str, Any] = json.loads(output)
    return document


@pytest.mark.thorough
async def test_no_grace_is_noted_once_the_crd_is_deleted(world: ReflectedWorld) -> None:
    world.group("group", "undefined")
    with restored(world.hosts.api, HOST_CONFIGS, world.hosts.namespace):
        async with world.wadm("undefined") as wadm, world.reflector(LONG) as service:
            before = await deployed(world, wadm)
            noted = service_reflector.app.PRESERVED
            world.hosts.call("DELETE", HOST_CONFIGS, "group")
            await eventually(lambda: any(noted in note for note in service.health.notes()), "noted", seconds=PATIENCE)
            delete_definition(world.hosts.api, HOST_CONFIGS)
            await eventually(lambda: not service.health.readiness().ok, "the kind is unknown", seconds=PATIENCE)
            assert not any(noted in note for note in service.health.notes())
            assert "crds check" in (await explained(world, "shop"))["do"]
            assert identities(world) == before


@pytest.mark.thorough
async def test_a_rotated_secret_that_is_not_there_yet_changes_nothing(tmp_path: Path, world: ReflectedWorld) -> None:
    with NatsServer(tmp_path / "other") as other:
        world.group("group", "rotation", secretName="creds-1")
        async with world.wadm("rotation") as wadm, world.reflector(LONG):
            before = await deployed(world, wadm)
            former = lattice_id(world, "shop")
            # Another NATS, on which nobody answers for wadm.
            world.hosts.change("group", secretName="creds-2", natsClientPort=other.port)
            await eventually(
                lambda: Undecided.LATTICE_UNREACHABLE in reasons(world, "Service"), "an Event", seconds=PATIENCE
            )
            assert identities(world) == before
            world.hosts.change("group", natsClientPort=world.server.port)
            await handed_over(world, former)
            assert identities(world) == before
            assert world.hosts.find(SECRETS, "creds-2") is None
