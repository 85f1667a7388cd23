"""Nothing of an Application is lost or undeployed by mistake: lattices that go, storage that is lost, force, rights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest

from support.cluster.grants import SYSTEM, given, granted, manifests, refused, used
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import RealLattice, Wadm, application, wasm_component
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import wadm_has
from support.wadm.application_world import ApplicationWorld, spec
from support.wadm.wadm_stand_in import BUCKET
from trellis import names
from trellis.kube.resources import APPLICATIONS, CONFIGMAPS, HOST_CONFIGS, LEASES
from trellis.lattice.domain.group_views import view_group
from trellis.lattice.domain.subjects import STREAM_MODELS
from trellis_dev.localcluster import ClusterInfo

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]


def from_wash(name: str, version: str = "w1") -> Manifest:
    return application(name, wasm_component("echo", f"file:///{version}.wasm"), version=version)


def tombstones(apps: ApplicationWorld) -> Manifest:
    """Return what is remembered of Applications that were let go."""
    status, found = apps.hosts.api.call("GET", CONFIGMAPS.path(apps.hosts.fleet.system, names.TOMBSTONES))
    return dict(found.get("data") or {}) if status == 200 else {}


async def test_an_application_without_a_lattice_waits_and_begins_when_there_is_one(
    apps: ApplicationWorld, wadm: Wadm
) -> None:
    async with apps.manager():
        apps.apply("web", spec())
        found = await apps.condition("web", "Synced", "False", "NoLattice")
        assert found["status"]["phase"] == "Waiting"
        assert "WasmCloudHostConfig" in str(found["status"]["conditions"])
        apps.group()
        await apps.synced("web")
        assert await wadm.names() == {"web"}


async def test_an_application_that_wadm_stores_and_does_not_list_is_listed_again(
    apps: ApplicationWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    """As wadm leaves it when it is killed between its two writes: the same version is refused from then on."""
    apps.group()
    await wadm.put(from_wash("web"))
    client = await nats.connect(real_lattice.url)
    try:
        await (await client.jetstream().key_value(BUCKET)).put(apps.lattice, b"[]")
    finally:
        await client.close()
    assert await wadm.names() == set()
    assert (await wadm.put(from_wash("web")))["result"] == "error"
    assert await wadm.names() == set()
    async with apps.manager():
        await apps.synced("web", deployed=False, version="w1")
        await wadm_has(wadm, "web", deployed_version=None)
        await apps.synced("web", deployed=False, version="w1")


async def test_the_label_selects_one_of_two_lattices(
    apps: ApplicationWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    other = own_lattice()
    apps.group("one")
    apps.group("two", lattice=other)
    async with apps.manager(), Wadm.of(real_lattice.url, other) as theirs:
        apps.apply("web", spec())
        await apps.condition("web", "Synced", "False", "NoLattice")
        apps.patch("web", {"metadata": {"labels": {names.LABEL_LATTICE: other}}})
        await apps.synced("web")
        assert await theirs.names() == {"web"}
        assert await wadm.names() == set()
        await wadm.put(from_wash("web"))
        second = names.second_application_object("web", _mark(apps))
        found = await apps.synced(second, deployed=False)
        assert found["metadata"]["annotations"][names.ANNOTATION_APP_NAME] == "web"


def _mark(apps: ApplicationWorld) -> str:
    """Return the ID of the test's first lattice."""
    group = apps.hosts.call("GET", HOST_CONFIGS, "one")
    return view_group(group).lattice


async def test_the_lattice_of_another_namespace_is_not_to_be_had(apps: ApplicationWorld, wadm: Wadm) -> None:
    async with apps.manager():
        apps.apply("web", spec(), labels={names.LABEL_LATTICE: apps.lattice})
        found = await apps.condition("web", "Synced", "False", "NoLattice")
        assert apps.lattice in str(found["status"]["conditions"])
        assert await wadm.names() == set()


async def test_the_last_group_goes_and_nothing_is_undeployed(apps: ApplicationWorld, wadm: Wadm) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        apps.apply("goes", spec())
        await apps.synced("web")
        await apps.synced("goes")
        apps.hosts.call("DELETE", HOST_CONFIGS, "group")
        await apps.condition("web", "Synced", "False", "NoLattice")
        await apps.condition("goes", "Synced", "False", "NoLattice")
        assert await wadm.names() == {"web", "goes"}
        apps.delete("goes")
        await apps.deleted("goes")
        assert len(tombstones(apps)) == 1
        apps.group("again")
        await apps.synced("web")
        await wadm.put(from_wash("other"))
        await apps.synced("other", deployed=False)  # the lattice is listed: what is to come back would have
        assert apps.find("goes") is None
        await wadm.put(from_wash("goes", "w2"))
        await apps.synced("goes")


async def test_an_object_whose_finalizer_is_removed_by_force_is_not_recreated(
    apps: ApplicationWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
        await asyncio.to_thread(real_lattice.kill_wadm)
        try:
            apps.delete("web")
            apps.patch("web", {"metadata": {"finalizers": None}})
            await apps.deleted("web")
            await eventually(lambda: tombstones(apps), "a tombstone", seconds=PATIENCE)
            await eventually(lambda: "FinalizerRemoved" in apps.warnings(), "an Event", seconds=PATIENCE)
        finally:
            await asyncio.to_thread(real_lattice.start_wadm)
    async with apps.manager():
        await wadm.put(from_wash("other"))
        await apps.synced("other", deployed=False)
        assert apps.find("web") is None
        assert await wadm.names() == {"web", "other"}


async def test_a_model_lost_from_wadms_storage_is_put_and_deployed_again(
    apps: ApplicationWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("mine", spec())
        await wadm.put(from_wash("theirs"))
        await wadm.deploy("theirs", "w1")
        await wadm.put(from_wash("idle"))
        before = await apps.synced("mine")
        await apps.synced("theirs")
        await apps.synced("idle", deployed=False)
        await asyncio.to_thread(real_lattice.kill_wadm)
        client = await nats.connect(real_lattice.url)
        try:
            await client.jetstream().delete_stream(STREAM_MODELS)
        finally:
            await client.close()
            await asyncio.to_thread(real_lattice.start_wadm)
        former = before["status"]["synced"]["bucket"]
        for name, deployed in (("mine", True), ("theirs", True), ("idle", False)):
            await apps.until(name, "in another bucket", lambda item: item["status"]["synced"]["bucket"] != former)
            await apps.synced(name, deployed=deployed)
        assert await wadm.names() == {"mine", "theirs", "idle"}


async def test_both_sides_change_at_once_and_the_loser_can_be_read(apps: ApplicationWorld, wadm: Wadm) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
    await wadm.put(from_wash("web"))
    await wadm.deploy("web", "w1")
    apps.patch("web", {"spec": spec("file:///none-2.wasm")})
    async with apps.manager():
        found = await apps.condition("web", "Overridden", "True", "WadmLost")
        found = await apps.synced("web")
        assert found["spec"] == spec("file:///none-2.wasm")
        assert found["status"]["overridden"] == {"side": "wadm", "version": "w1"}
        assert "w1" in {version["version"] for version in found["status"]["versions"]}
        await eventually(lambda: "Overridden" in apps.warnings(), "an Event", seconds=PATIENCE)


async def test_two_objects_of_one_application_are_distinguished_by_age(apps: ApplicationWorld, wadm: Wadm) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("first", spec(), annotations={names.ANNOTATION_APP_NAME: "web"})
        await apps.synced("first")
        await eventually_older(apps, "first")
        apps.apply("second", spec("file:///none-2.wasm"), annotations={names.ANNOTATION_APP_NAME: "web"})
        await apps.condition("second", "Stalled", "True", "Duplicate")
        assert await wadm.names() == {"web"}
        apps.delete("second")
        await apps.deleted("second")
        assert await wadm.names() == {"web"}


async def eventually_older(apps: ApplicationWorld, name: str) -> None:
    """Wait until what is made from now on has a later time of creation, which is in whole seconds."""
    created = apps.find(name)["metadata"]["creationTimestamp"]  # type: ignore[index]

    def later() -> bool:
        probe = apps.hosts.api.call("POST", APPLICATIONS.path(apps.namespace) + "?dryRun=All", _probe())[1]
        return str(probe["metadata"]["creationTimestamp"]) > str(created)

    await eventually(later, "another second", seconds=PATIENCE)


def _probe() -> Manifest:
    return {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind, "metadata": {"name": "probe"}} | {
        "spec": spec()
    }


async def test_uninstalling_takes_every_finalizer_and_leaves_wadm_alone(apps: ApplicationWorld, wadm: Wadm) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
    async with apps.manager(remove_finalizers=True):
        await apps.until("web", "without finalizer", lambda item: not item["metadata"].get("finalizers"))
    apps.delete("web")
    await apps.deleted("web")
    assert await wadm.names() == {"web"}


async def test_no_right_is_missing(apps: ApplicationWorld, wadm: Wadm, cluster: ClusterInfo, tmp_path: Path) -> None:
    applied = manifests("application-manager.yaml")
    apps.group("group", secretName="creds")
    with granted(cluster, apps.hosts.api, "trellis-application-manager", tmp_path) as account:
        account.apply(applied)
        apps.hosts.api.call("DELETE", LEASES.path(SYSTEM, "trellis-application-manager"))
        apps.hosts.api.call("DELETE", CONFIGMAPS.path(SYSTEM, names.TOMBSTONES))
        offset = apps.hosts.fleet.audit_offset()
        async with apps.manager(kubeconfig=account.kubeconfig, namespace=SYSTEM) as service:
            for name in ("mine", "stays"):
                apps.apply(name, spec())
                await apps.synced(name)
            await wadm.put(from_wash("theirs"))
            await apps.synced("theirs", deployed=False)
            await wadm.delete("theirs")
            await apps.deleted("theirs")
            apps.delete("mine")
            await apps.deleted("mine")
            apps.hosts.call("DELETE", HOST_CONFIGS, "group")
            await apps.condition("stays", "Synced", "False", "NoLattice")
            apps.delete("stays")
            await apps.deleted("stays")
            await eventually(lambda: "FinalizerRemoved" in apps.warnings(), "an Event", seconds=PATIENCE)
            assert service.health.readiness().reasons == ()
    records = apps.hosts.fleet.writes(offset)
    assert refused(records, account.user) == []
    anywhere = {(verb, resource) for verb, resource, _ in given(applied)}
    assert {(verb, resource) for verb, resource, _ in used(records, account.user)} <= anywhere


async def test_a_group_reports_since_when_its_applications_may_be_outdated(
    apps: ApplicationWorld, real_lattice: RealLattice
) -> None:
    def reported() -> tuple[str, str]:
        return apps.hosts.condition("group", names.CONDITION_APPLICATIONS_SYNCED)[:2]

    apps.group()
    async with apps.hosts.service(), apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
        await eventually(lambda: reported() == ("True", "Synced"), "it is said", seconds=PATIENCE)
        await asyncio.to_thread(real_lattice.nats.kill)
        try:
            await eventually(lambda: reported() == ("Unknown", "WadmUnavailable"), "wadm is away", seconds=PATIENCE)
            # host_manager, too, wrote its part of the status.
            unavailable = "the lattice is away for host_manager"
            await eventually(
                lambda: apps.hosts.condition("group", "HostsReporting")[0] == "Unknown", unavailable, seconds=PATIENCE
            )
            assert reported() == ("Unknown", "WadmUnavailable")
        finally:
            await asyncio.to_thread(real_lattice.nats.start)
            await asyncio.to_thread(real_lattice.kill_wadm)
            await asyncio.to_thread(real_lattice.start_wadm)
        await eventually(lambda: reported() == ("True", "Synced"), "it is there again", seconds=PATIENCE)
        assert apps.hosts.condition("group", "HostsReporting")[1]
