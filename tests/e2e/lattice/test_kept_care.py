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
from support.wadm.kept import KeptWorld, spec
from support.wadm.kept_behaviour import wadm_has
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


def tombstones(kept: KeptWorld) -> Manifest:
    """Return what is remembered of Applications that were let go."""
    status, found = kept.hosts.api.call("GET", CONFIGMAPS.path(kept.hosts.fleet.system, names.TOMBSTONES))
    return dict(found.get("data") or {}) if status == 200 else {}


async def test_an_application_without_a_lattice_waits_and_begins_when_there_is_one(kept: KeptWorld, wadm: Wadm) -> None:
    async with kept.manager():
        kept.apply("web", spec())
        found = await kept.condition("web", "Synced", "False", "NoLattice")
        assert found["status"]["phase"] == "Waiting"
        assert "WasmCloudHostConfig" in str(found["status"]["conditions"])
        kept.group()
        await kept.synced("web")
        assert await wadm.names() == {"web"}


async def test_an_application_that_wadm_stores_and_does_not_list_is_listed_again(
    kept: KeptWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    """As wadm leaves it when it is killed between its two writes: the same version is refused from then on."""
    kept.group()
    await wadm.put(from_wash("web"))
    client = await nats.connect(real_lattice.url)
    try:
        await (await client.jetstream().key_value(BUCKET)).put(kept.lattice, b"[]")
    finally:
        await client.close()
    assert await wadm.names() == set()
    assert (await wadm.put(from_wash("web")))["result"] == "error"
    assert await wadm.names() == set()
    async with kept.manager():
        await kept.synced("web", deployed=False, version="w1")
        await wadm_has(wadm, "web", deployed_version=None)
        await kept.synced("web", deployed=False, version="w1")


async def test_the_label_selects_one_of_two_lattices(kept: KeptWorld, wadm: Wadm, real_lattice: RealLattice) -> None:
    other = own_lattice()
    kept.group("one")
    kept.group("two", lattice=other)
    async with kept.manager(), Wadm.of(real_lattice.url, other) as theirs:
        kept.apply("web", spec())
        await kept.condition("web", "Synced", "False", "NoLattice")
        kept.patch("web", {"metadata": {"labels": {names.LABEL_LATTICE: other}}})
        await kept.synced("web")
        assert await theirs.names() == {"web"}
        assert await wadm.names() == set()
        await wadm.put(from_wash("web"))
        second = names.second_application_object("web", _mark(kept))
        found = await kept.synced(second, deployed=False)
        assert found["metadata"]["annotations"][names.ANNOTATION_APP_NAME] == "web"


def _mark(kept: KeptWorld) -> str:
    """Return the ID of the test's first lattice."""
    group = kept.hosts.call("GET", HOST_CONFIGS, "one")
    return view_group(group).lattice


async def test_the_lattice_of_another_namespace_is_not_to_be_had(kept: KeptWorld, wadm: Wadm) -> None:
    async with kept.manager():
        kept.apply("web", spec(), labels={names.LABEL_LATTICE: kept.lattice})
        found = await kept.condition("web", "Synced", "False", "NoLattice")
        assert kept.lattice in str(found["status"]["conditions"])
        assert await wadm.names() == set()


async def test_the_last_group_goes_and_nothing_is_undeployed(kept: KeptWorld, wadm: Wadm) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("web", spec())
        kept.apply("goes", spec())
        await kept.synced("web")
        await kept.synced("goes")
        kept.hosts.call("DELETE", HOST_CONFIGS, "group")
        await kept.condition("web", "Synced", "False", "NoLattice")
        await kept.condition("goes", "Synced", "False", "NoLattice")
        assert await wadm.names() == {"web", "goes"}
        kept.delete("goes")
        await kept.deleted("goes")
        assert len(tombstones(kept)) == 1
        kept.group("again")
        await kept.synced("web")
        await wadm.put(from_wash("other"))
        await kept.synced("other", deployed=False)  # the lattice is listed: what is to come back would have
        assert kept.find("goes") is None
        await wadm.put(from_wash("goes", "w2"))
        await kept.synced("goes")


async def test_an_object_whose_finalizer_is_removed_by_force_is_not_recreated(
    kept: KeptWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("web", spec())
        await kept.synced("web")
        await asyncio.to_thread(real_lattice.kill_wadm)
        try:
            kept.delete("web")
            kept.patch("web", {"metadata": {"finalizers": None}})
            await kept.deleted("web")
            await eventually(lambda: tombstones(kept), "a tombstone", seconds=PATIENCE)
            await eventually(lambda: "FinalizerRemoved" in kept.warnings(), "an Event", seconds=PATIENCE)
        finally:
            await asyncio.to_thread(real_lattice.start_wadm)
    async with kept.manager():
        await wadm.put(from_wash("other"))
        await kept.synced("other", deployed=False)
        assert kept.find("web") is None
        assert await wadm.names() == {"web", "other"}


async def test_a_model_lost_from_wadms_storage_is_put_and_deployed_again(
    kept: KeptWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("mine", spec())
        await wadm.put(from_wash("theirs"))
        await wadm.deploy("theirs", "w1")
        await wadm.put(from_wash("idle"))
        before = await kept.synced("mine")
        await kept.synced("theirs")
        await kept.synced("idle", deployed=False)
        await asyncio.to_thread(real_lattice.kill_wadm)
        client = await nats.connect(real_lattice.url)
        try:
            await client.jetstream().delete_stream(STREAM_MODELS)
        finally:
            await client.close()
            await asyncio.to_thread(real_lattice.start_wadm)
        former = before["status"]["synced"]["bucket"]
        for name, deployed in (("mine", True), ("theirs", True), ("idle", False)):
            await kept.until(name, "in another bucket", lambda item: item["status"]["synced"]["bucket"] != former)
            await kept.synced(name, deployed=deployed)
        assert await wadm.names() == {"mine", "theirs", "idle"}


async def test_both_sides_change_at_once_and_the_loser_can_be_read(kept: KeptWorld, wadm: Wadm) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("web", spec())
        await kept.synced("web")
    await wadm.put(from_wash("web"))
    await wadm.deploy("web", "w1")
    kept.patch("web", {"spec": spec("file:///none-2.wasm")})
    async with kept.manager():
        found = await kept.condition("web", "Overridden", "True", "WadmLost")
        found = await kept.synced("web")
        assert found["spec"] == spec("file:///none-2.wasm")
        assert found["status"]["overridden"] == {"side": "wadm", "version": "w1"}
        assert "w1" in {version["version"] for version in found["status"]["versions"]}
        await eventually(lambda: "Overridden" in kept.warnings(), "an Event", seconds=PATIENCE)


async def test_two_objects_of_one_application_are_distinguished_by_age(kept: KeptWorld, wadm: Wadm) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("first", spec(), annotations={names.ANNOTATION_APP_NAME: "web"})
        await kept.synced("first")
        await eventually_older(kept, "first")
        kept.apply("second", spec("file:///none-2.wasm"), annotations={names.ANNOTATION_APP_NAME: "web"})
        await kept.condition("second", "Stalled", "True", "Duplicate")
        assert await wadm.names() == {"web"}
        kept.delete("second")
        await kept.deleted("second")
        assert await wadm.names() == {"web"}


async def eventually_older(kept: KeptWorld, name: str) -> None:
    """Wait until what is made from now on has a later time of creation, which is in whole seconds."""
    created = kept.find(name)["metadata"]["creationTimestamp"]  # type: ignore[index]

    def later() -> bool:
        probe = kept.hosts.api.call("POST", APPLICATIONS.path(kept.namespace) + "?dryRun=All", _probe())[1]
        return str(probe["metadata"]["creationTimestamp"]) > str(created)

    await eventually(later, "another second", seconds=PATIENCE)


def _probe() -> Manifest:
    return {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind, "metadata": {"name": "probe"}} | {
        "spec": spec()
    }


async def test_uninstalling_takes_every_finalizer_and_leaves_wadm_alone(kept: KeptWorld, wadm: Wadm) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("web", spec())
        await kept.synced("web")
    async with kept.manager(remove_finalizers=True):
        await kept.until("web", "without finalizer", lambda item: not item["metadata"].get("finalizers"))
    kept.delete("web")
    await kept.deleted("web")
    assert await wadm.names() == {"web"}


async def test_no_right_is_missing(kept: KeptWorld, wadm: Wadm, cluster: ClusterInfo, tmp_path: Path) -> None:
    applied = manifests("application-manager.yaml")
    kept.group("group", secretName="creds")
    with granted(cluster, kept.hosts.api, "trellis-application-manager", tmp_path) as account:
        account.apply(applied)
        kept.hosts.api.call("DELETE", LEASES.path(SYSTEM, "trellis-application-manager"))
        kept.hosts.api.call("DELETE", CONFIGMAPS.path(SYSTEM, names.TOMBSTONES))
        offset = kept.hosts.fleet.audit_offset()
        async with kept.manager(kubeconfig=account.kubeconfig, namespace=SYSTEM) as service:
            for name in ("mine", "stays"):
                kept.apply(name, spec())
                await kept.synced(name)
            await wadm.put(from_wash("theirs"))
            await kept.synced("theirs", deployed=False)
            await wadm.delete("theirs")
            await kept.deleted("theirs")
            kept.delete("mine")
            await kept.deleted("mine")
            kept.hosts.call("DELETE", HOST_CONFIGS, "group")
            await kept.condition("stays", "Synced", "False", "NoLattice")
            kept.delete("stays")
            await kept.deleted("stays")
            await eventually(lambda: "FinalizerRemoved" in kept.warnings(), "an Event", seconds=PATIENCE)
            assert service.health.readiness().reasons == ()
    records = kept.hosts.fleet.writes(offset)
    assert refused(records, account.user) == []
    anywhere = {(verb, resource) for verb, resource, _ in given(applied)}
    assert {(verb, resource) for verb, resource, _ in used(records, account.user)} <= anywhere


async def test_a_group_reports_since_when_its_applications_may_be_outdated(
    kept: KeptWorld, real_lattice: RealLattice
) -> None:
    def reported() -> tuple[str, str]:
        return kept.hosts.condition("group", names.CONDITION_APPLICATIONS_SYNCED)[:2]

    kept.group()
    async with kept.hosts.service(), kept.manager():
        kept.apply("web", spec())
        await kept.synced("web")
        await eventually(lambda: reported() == ("True", "Synced"), "it is said", seconds=PATIENCE)
        await asyncio.to_thread(real_lattice.nats.kill)
        try:
            await eventually(lambda: reported() == ("Unknown", "WadmUnavailable"), "wadm is away", seconds=PATIENCE)
            # host_manager, too, wrote its part of the status.
            unavailable = "the lattice is away for host_manager"
            await eventually(
                lambda: kept.hosts.condition("group", "HostsReporting")[0] == "Unknown", unavailable, seconds=PATIENCE
            )
            assert reported() == ("Unknown", "WadmUnavailable")
        finally:
            await asyncio.to_thread(real_lattice.nats.start)
            await asyncio.to_thread(real_lattice.kill_wadm)
            await asyncio.to_thread(real_lattice.start_wadm)
        await eventually(lambda: reported() == ("True", "Synced"), "it is there again", seconds=PATIENCE)
        assert kept.hosts.condition("group", "HostsReporting")[1]
