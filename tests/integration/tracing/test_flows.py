"""Each of the five flows is one trace in a real Jaeger, or traces that lead to each other where causes were merged."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from host_manager.timings import Timings
from support.examples import flows
from support.guests.controllers_world import Host, Tenant, own_namespace, prebuilt, tenancy
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.lattice_speaker import LatticeSpeaker
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import Fleet, eventually
from support.secrets.secrets_host import value
from support.secrets.secrets_world import SecretsWorld
from support.suite.jaeger import Jaeger
from support.suite.traces import assert_links_lead, assert_silent, assert_whole, tree
from support.wadm.application_world import ApplicationWorld, application_world, spec
from support.wadm.manifests import manifest
from support.wadm.wadm_stand_in import WadmStandIn
from trellis import names
from trellis.events.subjects import HOST_MANAGER
from trellis.kube.resources import DEPLOYMENTS
from trellis.read_model.traces.spans import ReadSpan
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.jaeger,
    pytest.mark.timeout(300),
]

SECRET = "no-span-may-have-this"
NEWER = "nor-this-one"
ROLL = {"annotations": {names.ANNOTATION_RESTART_ON: names.RESTART_ON_CHANGE}}
PERMISSIONS = {
    "apiGroups": [""],
    "resources": ["configmaps"],
    "verbs": ["get", "list", "watch", "create", "update", "delete"],
}


def has(*wanted: str) -> Callable[[list[ReadSpan]], bool]:
    """Return a condition: a trace has spans of all these names."""
    return lambda spans: {*wanted} <= {span.name for span in spans}


async def links_lead(jaeger: Jaeger, spans: list[ReadSpan]) -> None:
    """Wait until what each link names is there."""

    async def lead() -> None:
        await asyncio.to_thread(assert_links_lead, spans, jaeger.trace)

    await jaeger.passes(lead)


def only(spans: list[ReadSpan], name: str) -> list[ReadSpan]:
    return [span for span in spans if span.name == name]


def run_installer(environment: dict[str, str], root: Path, endpoint: str) -> int:
    """Run the installer as the Job's container would, on a node that has no runtime; return its exit status."""
    passed = {name: text for name, text in os.environ.items() if not name.startswith("TRELLIS_")}
    passed |= environment | {"NODE_ROOT": str(root), "TRELLIS_OTLP_ENDPOINT": endpoint}
    passed["TRELLIS_INSTALLER_SPEC"] = '{"shims": []}'
    command = [sys.executable, "-m", "node_installer", "install"]
    return subprocess.run(command, env=passed, capture_output=True, timeout=60, check=False).returncode


async def test_a_node_is_one_trace_from_its_annotation_to_its_label(
    fleet: Fleet, jaeger: Jaeger, tmp_path: Path
) -> None:
    async with fleet.services(otlp_endpoint=jaeger.otlp):
        await fleet.both_listen()
        [name] = fleet.add("node")
        jobs = await eventually(fleet.jobs, "a Job")
        (container,) = jobs[0]["spec"]["template"]["spec"]["containers"]
        environment = {item["name"]: item["value"] for item in container["env"] if "value" in item}
        assert await asyncio.to_thread(run_installer, environment, tmp_path, jaeger.otlp) != 0
        await fleet.all_provisioned([name])
        await fleet.quiet()
    there = has(f"reconcile node {name}", "publish node.ready")
    spans = await jaeger.flow("trellis-node-watcher", there, name, flows.NODE, {name: "<node>"})
    assert {span.error for span in only(spans, "installer install")} != {""}, "its failure is marked"
    (plan,) = only(spans, "create installer job")[0].links
    await links_lead(jaeger, spans)
    (of_plan,) = [span for span in jaeger.trace(plan.trace_id) if span.span_id == plan.span_id]
    assert of_plan.name == "plan rollout"
    assert spans[0].trace_id in {link.trace_id for link in of_plan.links}, tree([of_plan])
    await links_lead(jaeger, [of_plan])


@pytest.mark.thorough
async def test_nodes_that_are_claimed_together_have_traces_of_their_own_and_one_plan(
    fleet: Fleet, jaeger: Jaeger
) -> None:
    async with fleet.services(otlp_endpoint=jaeger.otlp):
        await fleet.both_listen()
        nodes = fleet.add("one", "two", "three")
        await fleet.all_provisioned(nodes)
        await fleet.quiet()
    traces = [
        await jaeger.until("trellis-node-watcher", has(f"reconcile node {name}", "publish node.ready"), name)
        for name in nodes
    ]
    assert len({spans[0].trace_id for spans in traces}) == len(nodes)
    for spans in traces:
        assert_whole(spans)
        assert_links_lead(spans, jaeger.trace)
        assert only(spans, "create installer job")[0].links


async def test_an_application_is_one_trace_from_wadms_word_to_a_ready_endpoint(
    world: ReflectedWorld, jaeger: Jaeger
) -> None:
    lattice = own_lattice()
    world.group("group", lattice)
    key = f"{world.namespace}/shop"
    async with world.wadm(lattice) as wadm, world.reflector(otlp_endpoint=jaeger.otlp):
        await wadm.deploy(manifest("shop"))
        await world.has_service("shop", 8080)
        address = world.pod("group", "host-1")
        await world.leads_to("shop", address)
    there = has(f"reflect {key}", "publish service.reflected")
    await jaeger.flow("trellis-service-reflector", there, key, flows.SERVICE, {key: "<application>"})


async def test_a_group_is_one_trace_from_its_creation_to_its_hosts(
    hosts: HostWorld, nats_server: NatsServer, jaeger: Jaeger
) -> None:
    key = f"{hosts.namespace}/group"
    async with hosts.service(otlp_endpoint=jaeger.otlp):
        hosts.create("group", lattice=own_lattice(), natsAddress="nats://127.0.0.1", natsClientPort=nats_server.port)
        await hosts.settled("group")
    there = has(f"reconcile hosts {key}", "publish hosts.ready")
    await jaeger.flow("trellis-host-manager", there, key, flows.GROUP, {key: "<group>"})


@pytest.fixture
async def stand_in(nats_server: NatsServer) -> AsyncIterator[WadmStandIn]:
    async with WadmStandIn(nats_server.url, own_lattice()) as started:
        yield started


@pytest.fixture
def apps(hosts: HostWorld, nats_server: NatsServer, stand_in: WadmStandIn) -> Iterator[ApplicationWorld]:
    with application_world(hosts, nats_server.port, stand_in.lattice) as made:
        made.group()
        yield made


async def test_an_application_applied_with_kubectl_is_one_trace_over_wadm_to_its_status(
    apps: ApplicationWorld, jaeger: Jaeger
) -> None:
    name = f"shop-{secrets.token_hex(3)}"
    key = f"{apps.lattice}/{name}"
    async with apps.manager(otlp_endpoint=jaeger.otlp):
        apps.apply(name, spec())
        await apps.synced(name)
    spans = await jaeger.flow(
        "trellis-application-manager",
        has(f"reconcile application {key}", "publish application.synced"),
        "an application synced",
        flows.APPLICATION,
        {key: "<application>"},
    )
    assert {span.attributes["span.kind"] for span in spans if span.name.startswith("wadm ")} == {"client"}


@pytest.mark.thorough
async def test_an_application_put_with_wash_is_one_trace_to_its_object(
    apps: ApplicationWorld, stand_in: WadmStandIn, jaeger: Jaeger
) -> None:
    name = f"shop-{secrets.token_hex(3)}"
    key = f"{apps.lattice}/{name}"
    async with Wadm.of(stand_in.url, stand_in.lattice) as wadm, apps.manager(otlp_endpoint=jaeger.otlp):
        await wadm.put(application(name, wasm_component("echo", "file:///none-1.wasm"), version="v1"))
        await wadm.deploy(name)
        await apps.synced(name)
    await jaeger.flow(
        "trellis-application-manager",
        has(f"reconcile application {key}", "publish application.synced"),
        "an application synced",
        flows.FROM_WADM,
        {key: "<application>"},
    )


async def test_a_secret_is_one_trace_and_its_change_leads_back_to_it(
    hosts: HostWorld, secret_world: SecretsWorld, jaeger: Jaeger
) -> None:
    secret_world.secret("db", password=SECRET)
    secret_world.account(secrets=("db",))
    key, endpoint = f"{hosts.namespace}/group", {"otlp_endpoint": jaeger.otlp}
    async with (
        LatticeSpeaker(secret_world.server.url, "default", models=[]) as speaker,
        hosts.service(Timings(gathering=0.05), **endpoint),
        secret_world.backend(**endpoint),
    ):
        hosts.create("group", ROLL, natsAddress="nats://127.0.0.1", natsClientPort=secret_world.server.port)
        async with secret_world.asking() as host:
            await hosts.settled("group")
            await eventually(lambda: len(hosts.pods("group")) == 1, "one pod is left", seconds=PATIENCE)
            pod = hosts.pods("group")[0]["metadata"]["name"]
            speaker.add(host.host.public, labels={"kubernetes_pod": pod})
            await speaker.beat(host.host.public)
            await eventually(lambda: hosts.status("group").get("hosts"), "the host is seen", seconds=PATIENCE)
            await hosts.fleet.listening(HOST_MANAGER)
            assert value(await host.get("db", "password", namespace=hosts.namespace)) == SECRET
            refused = await host.get("nothing", "password", namespace=hosts.namespace)
            assert "error" in refused
            secret_world.secret("db", password=NEWER)
            await eventually(lambda: rolled(hosts), "it rolls", seconds=PATIENCE)
    changed = await jaeger.flow(
        "trellis-secrets-backend",
        has("secret changed", f"reconcile hosts {key}"),
        "a changed Secret and the roll of its group",
        flows.CHANGED,
        {key: "<group>"},
    )
    (root,) = only(changed, "secret changed")
    (link,) = root.links
    answered = lambda spans: spans[0].trace_id == link.trace_id  # noqa: E731
    answer = await jaeger.flow("trellis-secrets-backend", answered, "the answer", flows.SECRET, {})
    await links_lead(jaeger, [*changed, *answer])
    there = has("publish secret.denied", "kubernetes GET secrets")
    denied = await jaeger.until("trellis-secrets-backend", there, "a refusal")
    assert_whole(denied)
    assert [span.error != "" for span in only(denied, "kubernetes GET secrets")] == [True]
    assert_silent([*changed, *answer, *denied], SECRET, NEWER)


def rolled(hosts: HostWorld) -> bool:
    """Say whether the pods of the group say what they were restarted for."""
    template = hosts.call("GET", DEPLOYMENTS, "group")["spec"]["template"]["metadata"]
    return bool(template.get("annotations", {}).get(names.ANNOTATION_RESTARTED_FOR))


@pytest.fixture
def tenants(cluster_api: Api) -> Iterator[tuple[Tenant, Tenant]]:
    with tenancy(cluster_api) as make:
        yield make(), make()


@pytest.fixture
def host(
    cluster: ClusterInfo, cluster_api: Api, nats_server: NatsServer, jaeger: Jaeger, tmp_path: Path
) -> Iterator[Host]:
    settings = {"TRELLIS_OTLP_ENDPOINT": jaeger.otlp}
    with own_namespace(cluster_api, Host(cluster, nats_server.url, tmp_path, settings)) as made:
        yield made


async def test_a_controllers_call_is_one_trace_that_leads_to_what_its_object_names_and_from_its_status(
    host: Host, tenants: tuple[Tenant, Tenant], jaeger: Jaeger
) -> None:
    tenant, target = tenants
    who = f"{tenant.name}/mirror"
    tenant.account("mirror", PERMISSIONS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    tenant.controller("mirror", config={"targetNamespace": target.name})
    async with host.serving():
        made = tenant.config_map("one", text="former")
        await eventually(lambda: target.data("one") == {"text": "former"}, "mirrored", seconds=PATIENCE)
        await eventually(host.asleep, "suspended", seconds=PATIENCE)
        cold = await jaeger.until("trellis-controller-host", calls(who, "cold start"), "the first call")
        cause = f"00-{cold[0].trace_id}-{cold[0].span_id}-01"
        patch = {"metadata": {"annotations": {names.ANNOTATION_TRACEPARENT: cause}}, "data": {"text": "newer"}}
        path = f"/api/v1/namespaces/{made['metadata']['namespace']}/configmaps/one"
        assert tenant.api.call("PATCH", path, patch)[0] == 200
        await eventually(lambda: (target.data("one") or {}).get("text") == "newer", "followed", seconds=PATIENCE)
    woken = await jaeger.flow("trellis-controller-host", calls(who, "wake"), "the second call", flows.CONTROLLER, {})
    (root,) = [span for span in woken if not span.parent_id]
    assert [(link.trace_id, link.span_id) for link in root.links] == [(cold[0].trace_id, cold[0].span_id)]
    there = has(f"update status {who}", "kubernetes PATCH wasmcontrollers")
    reported = await jaeger.flow("trellis-controller-host", there, "its status", flows.REPORTED, {who: "<controller>"})
    await links_lead(jaeger, [*woken, *reported])
    assert_silent([*cold, *woken, *reported], "former", "newer")


def calls(who: str, how: str) -> Callable[[list[ReadSpan]], bool]:
    """Return a condition: a trace is the call of a controller, whose instance came by this."""
    return lambda spans: has(how)(spans) and any(span.attributes.get("trellis.controller") == who for span in spans)
