"""Situations that people meet, made for real: the first line of ``trellis explain`` names the cause of each.

So does the row of ``trellis status`` that counts it. The expected lines are in ``support/nodes/situations.py``.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from support.cluster.grants import SYSTEM, granted
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, own_namespace, tenancy, until
from support.guests.wat_guests import guest
from support.lattices.host_world import HostWorld
from support.lattices.reflected import ReflectedWorld
from support.nodes.explaining import PATIENCE, User
from support.nodes.fleet import Fleet, counted, eventually
from support.nodes.shims import Shim
from support.wadm.application_world import ApplicationWorld, spec
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from support.wadm.wadm_stand_in import WadmStandIn
from trellis import names
from trellis.events.subjects import escape
from trellis.kube.resources import APPLICATIONS, HOST_CONFIGS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(420)]

Manifest = dict[str, Any]


async def node_is_explained(fleet: Fleet, situation: str, node: str) -> Manifest:
    """See that a node's page and the row of the rollout name the cause."""
    user = User.of(fleet)
    page = await user.finds(situation, f"node/{node}")
    await user.counts(situation, node, page)
    return page


@pytest.mark.thorough
async def test_an_image_that_cannot_be_pulled(fleet: Fleet) -> None:
    [node] = fleet.add("nopull")
    async with fleet.services(inspect_after=1):
        page = await node_is_explained(fleet, "image cannot be pulled", node)
        steps = {line["about"]: line["ok"] for line in page["lines"]}
        assert (steps["kubelet"], steps["opted in"], steps["provisioner"]) == (True, True, True)


@pytest.mark.thorough
async def test_a_pull_secret_of_the_installer_that_is_missing(fleet: Fleet) -> None:
    [node] = fleet.add("nosecret")
    async with fleet.services(inspect_after=1, installer_pull_secrets="absent"):
        await node_is_explained(fleet, "pull secret missing", node)


@pytest.mark.thorough
async def test_a_wrong_checksum(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with fleet.services(retry_min=300, retry_max=300):
        shim.apply(path="other-file-here.tar.gz")
        page = await node_is_explained(fleet, "wrong checksum", node)
        _, of_shim = await User.of(fleet).document("explain", f"shim/{shim.name}")
        assert of_shim["cause"] == f"node {node}: {page['cause']}", "its Shim says the same"
        shim.delete()


@pytest.mark.thorough
async def test_a_handler_that_is_missing_after_the_job(fleet: Fleet) -> None:
    [node] = fleet.add("node")
    fleet.patch(node, {"status": {"runtimeHandlers": [{"name": "runc"}]}}, "/status")
    async with fleet.services(handler="spin", verify_timeout=1, retry_min=300, retry_max=300):
        await node_is_explained(fleet, "handler missing", node)


async def test_a_node_that_is_not_ready(fleet: Fleet) -> None:
    name = f"away-{fleet.id}"
    fleet.add_named(name, kubelet=False)
    condition = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    fleet.patch(name, {"status": {"conditions": [condition]}}, "/status")
    async with fleet.services():
        await node_is_explained(fleet, "node not ready", name)


def limit(fleet: Fleet, **hard: str) -> str:
    """Have a quota in the namespace of the installers; return its path."""
    metadata = {"name": fleet.installers}
    made = fleet.api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    assert made[0] in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}
    path = f"/api/v1/namespaces/{fleet.installers}/resourcequotas"
    body = {
        "metadata": {"name": "small"},
        "spec": {"hard": {key.replace("_", "/"): value for key, value in hard.items()}},
    }
    assert fleet.api.call("POST", path, body)[0] == http.HTTPStatus.CREATED
    return f"{path}/small"


@pytest.mark.thorough
async def test_a_quota_that_refuses_the_pod(fleet: Fleet) -> None:
    await counted(fleet.api, limit(fleet, pods="0"))
    [node] = fleet.add("node")
    async with fleet.services():
        await node_is_explained(fleet, "quota", node)


@pytest.mark.thorough
async def test_a_quota_that_refuses_the_job(fleet: Fleet) -> None:
    await counted(fleet.api, limit(fleet, **{"count_jobs.batch": "0"}))
    [node] = fleet.add("node")
    async with fleet.services():
        await node_is_explained(fleet, "quota of Jobs", node)


async def test_a_secret_that_is_missing(hosts: HostWorld) -> None:
    user = User.of(hosts.fleet)
    async with hosts.service():
        hosts.create("group", secretName="absent")
        page = await user.finds("missing Secret", "whc/group", "-n", hosts.namespace)
        await user.counts("missing Secret", f"{hosts.namespace}/group", page)


@pytest.mark.thorough
async def test_credentials_that_the_nats_of_a_lattice_refuses(hosts: HostWorld, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text('authorization { users: [ { user: "somebody", password: "else" } ] }')
    user = User.of(hosts.fleet)
    with NatsServer(tmp_path / "nats", config=config) as server:
        async with hosts.service():
            address = "nats://somebody:mistaken@127.0.0.1"
            hosts.create("group", lattice="closed", natsAddress=address, natsClientPort=server.port)
            page = await user.finds("NATS credentials wrong", "hostgroup/group", "-n", hosts.namespace)
            await user.counts("NATS credentials wrong", f"{hosts.namespace}/group", page)
            assert "mistaken" not in str(page)


@pytest.mark.thorough
async def test_an_application_that_listens_on_loopback(world: ReflectedWorld) -> None:
    world.group("group", "loop-lattice")
    user = User.of(world.hosts.fleet)
    async with world.wadm("loop-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("loop", capability("httpserver", link("127.0.0.1:80"), ANY_HOST)))
        page = await user.finds("loopback address", "service/loop", "-n", world.namespace)
        await user.counts("loopback address", f"{world.namespace}/loop", page)


@pytest.mark.thorough
async def test_a_wadm_that_is_unavailable(apps_by_stand_in: ApplicationWorld, stand_in: WadmStandIn) -> None:
    apps, user = apps_by_stand_in, User.of(apps_by_stand_in.hosts.fleet)
    apps.group()
    async with apps.manager():
        apps.apply("mine", spec(), annotations={"version": "v1"})
        await apps.synced("mine", version="v1")
        await stand_in.__aexit__()
        page = await user.finds("wadm away", "application/mine", "-n", apps.namespace)
        await user.counts("wadm away", f"{apps.namespace}/mine", page)
        await stand_in.__aenter__()  # or it cannot be let go of
        await apps.synced("mine", version="v1")


async def test_a_lattice_that_no_group_of_hosts_is_on(apps_by_stand_in: ApplicationWorld) -> None:
    apps, user = apps_by_stand_in, User.of(apps_by_stand_in.hosts.fleet)
    apps.group()
    async with apps.manager():
        apps.apply("lost", spec(), labels={names.LABEL_LATTICE: "nowhere"}, annotations={"version": "v1"})
        await apps.condition("lost", "Synced", "False", "NoLattice")
        page = await user.finds("unknown lattice", f"{APPLICATIONS.plural}/lost", "-n", apps.namespace)
        await user.counts("unknown lattice", f"{apps.namespace}/lost", page)


@pytest.fixture
def tenant(cluster_api: Api) -> Iterator[Tenant]:
    with tenancy(cluster_api) as make:
        yield make()


@pytest.fixture
def host(cluster: ClusterInfo, cluster_api: Api, nats_server: NatsServer, tmp_path: Path) -> Iterator[Host]:
    with own_namespace(cluster_api, Host(cluster, nats_server.url, tmp_path)) as made:
        yield made


@pytest.mark.thorough
async def test_a_controller_that_traps(
    cluster: ClusterInfo, nats_server: NatsServer, host: Host, tenant: Tenant
) -> None:
    tenant.account("any", CONFIG_MAPS)
    tenant.module("traps", guest("traps"))
    tenant.controller("traps", "traps", serviceAccountName="any")
    tenant.config_map("x")
    user = User.at(cluster, nats_server.url, host.name)
    async with host.serving():
        await until(lambda: (tenant.status("traps").get("lastFault") or {}).get("kind") == "Trapped", "it traps")
        page = await user.finds("trap in a controller", "wasmctl/traps", "-n", tenant.name)
        await user.counts("trap in a controller", f"{tenant.name}/traps", page)


@pytest.mark.thorough
async def test_an_undecodable_message(fleet: Fleet) -> None:
    user = User.of(fleet)
    async with fleet.services():
        await fleet.both_listen()
        client = await nats.connect(fleet.info.nats_url)
        await client.jetstream().publish(f"trellis.evt.{fleet.id}.node.opted_in.{escape('x')}", b"\xff not json")
        await client.close()
        letters: list[Manifest] = []
        async with asyncio.timeout(PATIENCE):
            while not letters:
                letters = (await user.document("dead-letters", "list", "--cluster", fleet.id))[1]["letters"]
        await user.finds("dead letter", f"deadletter/{letters[0]['sequence']}")
        _, status = await user.document("status")
        assert status["bus"]["dead_letters"] >= 1
        assert "trellis explain deadletter/" in status["bus"]["problem"]


async def test_permissions_that_are_lacking_are_named_and_hide_nothing_else(
    fleet: Fleet, cluster: ClusterInfo, cluster_api: Api, tmp_path: Path
) -> None:
    [node] = fleet.add("nopull")
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]
    role = {"kind": "ClusterRole", "metadata": {"name": f"{fleet.id}-looks"}, "rules": rules}
    async with fleet.services():
        await eventually(lambda: fleet.job_of(node), "a Job")
        with granted(cluster, cluster_api, "looks", tmp_path) as account:
            subject = {"kind": "ServiceAccount", "namespace": SYSTEM, "name": "looks"}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{fleet.id}-looks"}
            bound = {
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{fleet.id}-looks"},
                "subjects": [subject],
                "roleRef": reference,
            }
            account.apply([{"kind": "ServiceAccount", "metadata": {"namespace": SYSTEM, "name": "looks"}}, role, bound])
            user = User(account.kubeconfig, str(fleet.info.nats_url), fleet.system, fleet.installers)
            code, page = await user.document("explain", f"node/{node}")
            permissions = [line["text"] for line in page["lines"] if line["about"] == "permissions"]
            assert code == 1
            assert any(f"list jobs.batch in namespace {fleet.installers}" in text for text in permissions), page
            code, status = await user.document("status")
            assert code == int(status["ok"] is False), "what may not be read is no problem"
            assert status["kubernetes"]["ok"]
            assert status["rollout"]["counts"] is not None, "the nodes may be read"
            assert (status["hosts"]["ok"], status["hosts"]["problem"]) == (None, None)
            assert f"list {HOST_CONFIGS.definition}" in status["hosts"]["unread"]
