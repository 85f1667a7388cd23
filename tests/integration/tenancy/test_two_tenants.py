"""Two tenants try every way they have to see or touch what is the other's: each is refused, with a reason.

Theirs are: their account of Kubernetes, with every right in its namespace; their user of NATS; names that they choose;
policies and tokens that they write; prefixes of control subjects.
"""

from __future__ import annotations

import http
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg

import secrets_backend.app
import secrets_backend.settings
from support.guests.controllers_world import CONFIG_MAPS, Tenant, define, own_namespace, prebuilt, until
from support.guests.controllers_world import Host as ControllerHost
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nats.tenants import EAST, WEST, control_prefix, url_of, write_accounts
from support.nats.two_tenants import Side, second_namespace, side
from support.nodes.fleet import eventually
from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import define_grants, served
from support.suite.in_process import serving
from support.suite.settling import settle
from support.wadm.application_world import spec
from support.wadm.wadm_stand_in import WadmStandIn
from trellis import names
from trellis.kube.resources import (
    APPLICATIONS,
    CONFIGMAPS,
    HOST_CONFIGS,
    NAMESPACES,
    NODES,
    SECRET_GRANTS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SHIMS,
    WASM_CONTROLLERS,
)
from trellis.lattice.domain.subjects import STREAM_MODELS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


class Both(NamedTuple):
    """``east`` tries; ``west`` has what is tried. Their lattices have one name."""

    east: Side
    west: Side
    lattice: str
    server: NatsServer


@pytest.fixture
def both(hosts: HostWorld, cluster: ClusterInfo, tmp_path: Path) -> Iterator[Both]:
    define_grants(hosts.api)
    hosts.api.call("POST", NAMESPACES.path(), {"metadata": {"name": hosts.fleet.system}})
    lattice = own_lattice()
    with (
        NatsServer(tmp_path / "nats", config=write_accounts(tmp_path / "config")) as server,
        second_namespace(hosts) as others,
        side(hosts, cluster, server, EAST, lattice) as east,
        side(others, cluster, server, WEST, lattice) as west,
    ):
        yield Both(east, west, lattice, server)


@pytest.fixture
async def wadms(both: Both) -> AsyncIterator[tuple[WadmStandIn, WadmStandIn]]:
    url = url_of(both.server.port)
    async with (
        WadmStandIn(url, both.lattice, account=EAST) as of_east,
        WadmStandIn(url, both.lattice, account=WEST) as of_west,
    ):
        yield of_east, of_west


def test_an_account_with_every_permission_in_its_namespace_has_none_elsewhere(both: Both, cluster_api: Api) -> None:
    define(cluster_api)
    theirs, system = both.west.namespace, both.east.hosts.fleet.system
    tries = [
        ("GET", SECRETS.path(theirs, "db"), None),
        ("GET", SECRETS.path(system, names.SECRETS_KEY), None),
        ("GET", SECRETS.path(), None),
        *(("GET", kind.path(theirs), None) for kind in (APPLICATIONS, HOST_CONFIGS, SECRET_GRANTS, WASM_CONTROLLERS)),
        ("POST", APPLICATIONS.path(theirs), {"metadata": {"name": "mine"}, "spec": spec()}),
        ("POST", SECRET_GRANTS.path(theirs), {"metadata": {"name": "mine"}}),
        ("POST", f"{SERVICE_ACCOUNTS.path(theirs, names.SECRETS_ACCOUNT)}/token", {"spec": {}}),
        ("POST", SHIMS.path(), {"metadata": {"name": "root-on-nodes"}}),
        ("PATCH", NODES.path(None, "any"), {"metadata": {"annotations": {names.ANNOTATION_OPT_IN: "true"}}}),
    ]
    for method, path, body in tries:
        status, answer = both.east.api.call(method, path, body)
        assert status == http.HTTPStatus.FORBIDDEN, (method, path, answer)
        assert "forbidden" in answer["message"]


async def test_no_policy_or_name_that_one_tenant_writes_gets_a_secret_of_the_other(both: Both) -> None:
    east, west = both.east, both.west
    for item in (east, west):
        item.apps.group()
    settings = east.hosts.fleet.settings() | {"sources_interval": 1.0}
    create, subjects = secrets_backend.app.create_app, list[str]()
    async with (
        serving(create, secrets_backend.settings.Settings, settings),
        Host(east.url) as ours,
        Host(west.url) as theirs,
    ):
        for host in (ours, theirs):
            await served(host)

        async def receive(message: Msg) -> None:
            subjects.append(message.subject)

        def asked() -> int:
            return sum(subject.endswith(".get") for subject in subjects)

        await ours.client.subscribe(">", cb=receive)
        await settle(ours.client)
        for host, owner in ((ours, east), (theirs, west)):
            assert value(await host.get("db", "password", namespace=owner.namespace)) == owner.value
        await eventually(lambda: asked() == 1, "it hears its own", seconds=PATIENCE)
        assert value(await theirs.get("db", "password", namespace=west.namespace)) == west.value
        await settle(ours.client)
        assert asked() == 1, "nothing of the other's account comes by"

        full = f"system:serviceaccount:{west.namespace}:{names.SECRETS_ACCOUNT}"
        policies: list[dict[str, str]] = [
            {"namespace": west.namespace},
            {"namespace": west.namespace, "impersonate": names.SECRETS_ACCOUNT},
            {"namespace": west.namespace, "impersonate": full},
            {"namespace": east.namespace, "impersonate": full},
            {"namespace": east.namespace, "impersonate": f"{west.namespace}:{names.SECRETS_ACCOUNT}"},
            {"namespace": f"{east.namespace}/../{west.namespace}"},
            {"namespace": f"{west.namespace}/secrets/db?x="},
            {"namespace": "*"},
            {"namespace": ""},
        ]
        for policy in policies:
            for name in ("db", "nothing"):
                reply = value(await ours.get(name, "password", **policy))
                assert isinstance(reply, dict), (policy, reply)
                assert set(reply) == {"PolicyError"}, (policy, reply)
        for name in (f"../../{west.namespace}/secrets/db", f"../{west.namespace}/db", "db?x", "db%2f.."):
            reply = value(await ours.get(name, "password", namespace=east.namespace))
            assert reply != west.value
            assert isinstance(reply, dict | str), reply
            assert west.value not in str(reply)

        # A grant of one's own namespace gives others one's own, and nothing in return.
        grant = {
            "metadata": {"name": "mine"},
            "spec": {"from": [{"namespace": east.namespace}], "serviceAccounts": ["*"]},
        }
        status, answer = east.call("POST", SECRET_GRANTS, body=grant)
        assert status == http.HTTPStatus.CREATED, answer
        reply = value(await ours.get("db", "password", namespace=west.namespace))
        assert set(reply) == {"PolicyError"}


@pytest.mark.thorough
@pytest.mark.usefixtures("wadms")
async def test_of_two_lattices_of_one_name_neither_sees_the_others_applications(
    both: Both,
) -> None:
    east, west, lattice = both.east, both.west, both.lattice
    for item in (east, west):
        item.apps.group()
    async with (
        Wadm.of(east.url, lattice) as ours,
        Wadm.of(west.url, lattice) as theirs,
        east.hosts.service(),
        east.apps.manager(),
    ):
        await theirs.put(application("from-wash", wasm_component("echo", "file:///none-1.wasm"), version="v1"))
        east.apps.apply("web", spec("file:///east.wasm"))
        west.apps.apply("web", spec("file:///west.wasm"))
        for item in (east, west):
            await item.apps.synced("web")
        await west.apps.until("from-wash", "shown where it is", lambda _: True)
        assert (await ours.names(), await theirs.names()) == ({"web"}, {"web", "from-wash"})
        assert east.apps.find("from-wash") is None
        east.apps.delete("web")
        await east.apps.deleted("web")
        assert await theirs.names() == {"web", "from-wash"}
        assert west.apps.status("web")["conditions"]


@pytest.mark.thorough
@pytest.mark.usefixtures("wadms")
async def test_a_label_prefix_or_address_of_another_tenants_lattice_has_no_effect_and_is_reported(both: Both) -> None:
    east, west, port = both.east, both.west, both.server.port
    only_west = own_lattice()
    async with (
        WadmStandIn(url_of(port), only_west, account=WEST),
        Wadm.of(west.url, only_west) as theirs,
        Wadm.of(west.url, both.lattice) as theirs_too,
    ):
        await theirs_too.put(application("kept", wasm_component("echo", "file:///none-1.wasm"), version="v1"))
        west.apps.group("group", lattice=only_west)
        east.apps.group()
        # As wadm's account has it, from the tenant's own account.
        east.apps.group("prefix", controlTopicPrefix=control_prefix(WEST))
        wrong = "nats://west:guessed@127.0.0.1"
        east.apps.group("guessed", lattice=only_west, natsAddress=wrong)
        async with east.hosts.service(), east.apps.manager():
            east.apps.apply("reaches", spec(), labels={names.LABEL_LATTICE: only_west})

            def condition(name: str, kind: str) -> tuple[str, str, str]:
                return east.hosts.condition(name, kind)

            await eventually(
                lambda: condition("guessed", "HostsReporting")[:2] == ("Unknown", "LatticeUnreachable"),
                "told",
                seconds=PATIENCE,
            )
            assert "guessed" not in condition("guessed", "HostsReporting")[2].replace("group guessed", "")
            await eventually(
                lambda: condition("prefix", "ApplicationsKnown")[0] == "Unknown",
                "nobody answers there",
                seconds=PATIENCE,
            )
            found = await east.apps.until(
                "reaches",
                "refused, and told",
                lambda item: "Synced" in _reasons(item) and _reasons(item)["Synced"] != "True",
            )
            assert _reasons(found)["Synced"] in {"False", "Unknown"}
            assert east.apps.find("kept") is None
            assert await theirs.names() == set()
            assert await theirs_too.names() == {"kept"}


def _reasons(one: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in (one.get("status") or {}).get("conditions") or ()}


@pytest.mark.usefixtures("wadms")
async def test_a_tenants_account_cannot_reach_the_wadm_or_storage_of_another_tenant(
    both: Both,
) -> None:
    client = await nats.connect(both.east.url)
    try:
        for subject in (
            f"{WEST}.wadm.api.{both.lattice}.model.list",
            f"{WEST}.wasmbus.ctl.v1.{both.lattice}.host.ping",
            f"$JS.API.STREAM.INFO.{STREAM_MODELS}",
        ):
            try:
                answer = await client.request(subject, b"", timeout=20)
            except nats.errors.NoRespondersError:
                continue
            assert b"stream not found" in answer.data, (subject, answer.data)
    finally:
        await client.close()


@pytest.fixture
def controller_host(
    cluster: ClusterInfo, cluster_api: Api, nats_server: NatsServer, tmp_path: Path
) -> Iterator[ControllerHost]:
    with own_namespace(cluster_api, ControllerHost(cluster, nats_server.url, tmp_path)) as made:
        yield made


async def test_a_controller_is_no_account_of_another_namespace_sees_nothing_there_and_writes_nothing(
    both: Both, controller_host: ControllerHost
) -> None:
    east, west = (Tenant(item.hosts.api, item.namespace) for item in (both.east, both.west))
    body = {
        "module": {"configMap": {"name": "mirror", "key": "module.wasm"}},
        "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
    }
    for account in (f"{west.name}:mirror", f"../{west.name}/mirror", f"system:serviceaccount:{west.name}:mirror", "*"):
        crafted = {"metadata": {"name": "crafted"}, "spec": body | {"serviceAccountName": account}}
        status, answer = both.east.call("POST", WASM_CONTROLLERS, body=crafted)
        assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY, answer
        assert "serviceAccountName" in answer["message"]
    for tenant in (east, west):
        tenant.account("mirror", CONFIG_MAPS)
        tenant.module("mirror", prebuilt("mirror"))
    selector = {"matchLabels": {"watched": "true"}}
    spying = [{"apiVersion": "v1", "kind": "ConfigMap", "namespaces": [west.name], "labelSelector": selector}]
    east.controller(
        "spy", module="mirror", serviceAccountName="mirror", watches=spying, config={"targetNamespace": east.name}
    )
    east.controller("mirror", config={"targetNamespace": west.name})
    west.config_map("theirs", x="1")
    east.config_map("ours", y="1")
    try:
        async with controller_host.serving():
            await until(
                lambda: east.condition("spy", "WatchesGranted") == ("False", "AccountForbidden"), "it may not see them"
            )
            await until(lambda: controller_host.metric("trellis_controller_call_seconds_count") >= 1, "one is called")
            await until(
                lambda: (
                    controller_host.metric("trellis_controller_host_calls_total", status="403") >= 1
                    or controller_host.metric("trellis_controller_host_calls_total", result="forbidden") >= 1
                    or "orbidden" in str(east.status("mirror"))
                ),
                f"its write is refused: {east.status('mirror')}",
            )
            assert east.status("spy").get("calls", 0) == 0
            assert west.data("ours") is None
            assert east.data("theirs") is None
            names_there = {item["metadata"]["name"] for item in both.west.call("GET", CONFIGMAPS)[1]["items"]}
            assert names_there <= {"theirs", "mirror", "kube-root-ca.crt"}
    finally:
        for name in ("spy", "mirror"):
            east.remove(name)
            path = WASM_CONTROLLERS.path(east.name, name)
            both.east.hosts.api.call("PATCH", path, {"metadata": {"finalizers": None}})
