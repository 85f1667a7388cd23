"""`trellis migrate to-v2` on a cluster: what it reads, prints, writes and refuses to write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.lattices.host_groups import MINIMAL
from support.lattices.v2_objects import errors_of
from support.v2.explained import permissions_of
from support.wadm.manifests import capability, link, manifest
from support.wadm.migration_page import role
from trellis import names
from trellis.config.errors import SettingsError
from trellis.kube.errors import Forbidden
from trellis.kube.resources import (
    APPLICATIONS,
    CONFIGMAPS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    NAMESPACES,
    SECRET_GRANTS,
    SERVICES,
    WORKLOAD_DEPLOYMENTS,
    Manifest,
    Resource,
)
from trellis.lattice.connection.lattice_connection import NatsUnavailableError
from trellis.lattice.domain.models import Model
from trellis.telemetry import Metrics, setup
from trellis_cli.common.errors import CommandError
from trellis_cli.common.output import Format
from trellis_cli.common.settings import ClientSettings
from trellis_cli.migrate.model.to_v2.object_names import part_name
from trellis_cli.migrate.to_v2 import command, read
from trellis_cli.migrate.to_v2.apply import apply
from trellis_cli.migrate.to_v2.check import CheckTimings, check
from trellis_cli.migrate.to_v2.command import Options
from trellis_dev.fakes.fake import FakeKube, status_reply
from trellis_dev.localcluster.ports import LOOPBACK, free_ports

SETTINGS = ClientSettings()
PLAIN = Options("shop", False, None, False, False, "/", None)
APPLY = Options("shop", False, None, True, False, "/", None)
CHECK = Options("shop", False, None, False, True, "/", Format.JSON)


def application(name: str = "shop", namespace: str = "shop", **annotations: str) -> Manifest:
    found = manifest(name, **annotations)
    found["metadata"]["namespace"] = namespace
    return found


def host_group(namespace: str = "shop", name: str = "hosts", **annotations: str) -> Manifest:
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": MINIMAL | {"lattice": "default"},
    }


def reflected(name: str = "shop", namespace: str = "shop") -> Manifest:
    annotations = {names.ANNOTATION_APPLICATION: name, names.ANNOTATION_REFLECTED_AS: f"{namespace}/{name}"}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"ports": [{"name": "http", "port": 8080}]},
    }


def cluster() -> FakeKube:
    found = FakeKube(telemetry=setup("test", metrics=Metrics()))
    for namespace in ("shop", "other", "home"):
        found.put(NAMESPACES, {"metadata": {"name": namespace}})
    return found


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> FakeKube:
    found = cluster()
    found.define(WORKLOAD_DEPLOYMENTS)
    found.put(HOST_CONFIGS, host_group())

    @asynccontextmanager
    async def connected(_: ClientSettings) -> AsyncIterator[FakeKube]:
        yield found

    monkeypatch.setattr(command, "connected", connected)
    return found


async def applied(kube: FakeKube, namespace: str | None = "shop") -> list[tuple[str, str]]:
    found = await read.read(kube, namespace, None, from_wadm=False)
    return [
        (item.object, item.done) for item in (await apply(kube, found.conversions, namespace, complete=True)).applied
    ]


async def test_objects_are_printed_for_kubectl_and_the_report_is_beside_them(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.put(APPLICATIONS, application())
    assert await command._run(SETTINGS, PLAIN)
    shown = capsys.readouterr()
    objects = list(yaml.safe_load_all(shown.out))
    assert [item["kind"] for item in objects] == ["Service", "WorkloadDeployment"]
    assert [error for item in objects for error in errors_of(item)] == []
    assert "HostHeader" in shown.err
    assert kube.writes == []


async def test_json_has_the_objects_and_the_report(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    kube.put(APPLICATIONS, application())
    assert await command._run(SETTINGS, Options("shop", False, None, False, False, "/", Format.JSON))
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["ok"] is True
    assert [item["kind"] for item in document["objects"]] == ["Service", "WorkloadDeployment"]
    [found] = document["applications"]
    assert "HostHeader" in {line["reason"] for line in found["report"]}
    assert found["parts"]["spec.components[0]"] == "WorkloadDeployment shop/shop"
    assert shown.err == ""


async def test_an_application_that_wadm_would_refuse_ends_with_one_and_hides_no_other(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = application("bad")
    spoilt["spec"]["components"][0]["type"] = "x"
    kube.put(APPLICATIONS, spoilt)
    kube.put(APPLICATIONS, application())
    assert not await command._run(SETTINGS, PLAIN)
    shown = capsys.readouterr()
    assert "InvalidManifest" in shown.err
    assert {item["metadata"]["name"] for item in yaml.safe_load_all(shown.out)} == {"shop"}


async def test_one_namespace_is_read_or_all(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    kube.put(APPLICATIONS, application("till", "other"))
    assert [item.key for item in (await read.read(kube, "shop", None, from_wadm=False)).conversions] == ["shop/shop"]
    found = await read.read(kube, None, None, from_wadm=False)
    assert [item.key for item in found.conversions] == ["other/till", "shop/shop"]


async def test_a_namespace_that_does_not_exist_is_an_error(kube: FakeKube) -> None:
    with pytest.raises(CommandError) as missing:
        await read.read(kube, "shpo", None, from_wadm=False)
    assert "shpo" in str(missing.value)
    assert (await read.read(kube, "home", None, from_wadm=False)).conversions == (), "a namespace without applications"


async def test_objects_are_created_once_and_a_second_run_changes_nothing(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    assert await applied(kube) == [("Service shop/shop", "created"), ("WorkloadDeployment shop/shop", "created")]
    before = kube.objects(SERVICES), kube.objects(WORKLOAD_DEPLOYMENTS)
    assert {done for _, done in await applied(kube)} == {"unchanged"}
    assert (kube.objects(SERVICES), kube.objects(WORKLOAD_DEPLOYMENTS)) == before


async def test_a_changed_application_changes_its_workload(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    await applied(kube)
    changed = application()
    changed["spec"]["components"][0]["properties"]["image"] = "example.com/hello:2"
    kube.put(APPLICATIONS, changed)
    assert ("WorkloadDeployment shop/shop", "configured") in await applied(kube)
    [workload] = kube.objects(WORKLOAD_DEPLOYMENTS)
    assert workload["spec"]["template"]["spec"]["components"][0]["image"] == "example.com/hello:2"


async def test_no_object_of_v1_is_changed(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    kube.put(SERVICES, reflected())
    before = kube.objects(APPLICATIONS), kube.objects(SERVICES), kube.objects(HOST_CONFIGS)
    await applied(kube)
    assert kube.objects(APPLICATIONS) == before[0]
    assert [item for item in kube.objects(SERVICES) if item["metadata"]["name"] == "shop"] == before[1]
    assert kube.objects(HOST_CONFIGS) == before[2]
    assert {item["metadata"]["name"] for item in kube.objects(SERVICES)} == {"shop", "shop-v2"}


async def test_the_plain_name_is_used_when_v1_has_left_it_and_the_former_service_is_named(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    kube.put(SERVICES, reflected())
    await applied(kube)
    kube.remove(SERVICES, "shop", "shop")
    found = await read.read(kube, "shop", None, from_wadm=False)
    result = await apply(kube, found.conversions, "shop", complete=True)
    assert ("Service shop/shop", "created") in [(item.object, item.done) for item in result.applied]
    assert result.leftovers == ("kubectl delete services shop-v2 --namespace shop",)


async def test_an_application_with_the_name_of_a_temporary_service_is_applied(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    kube.put(SERVICES, reflected())
    await applied(kube)
    kube.put(APPLICATIONS, application("shop-v2"))
    with pytest.raises(CommandError) as refused:
        await applied(kube)
    assert "kubectl delete services shop-v2 --namespace shop" in str(refused.value)
    kube.remove(SERVICES, "shop-v2", "shop")
    await applied(kube)
    assert {done for _, done in await applied(kube)} == {"unchanged"}
    owners = {
        item["metadata"]["name"]: item["metadata"].get("labels", {}).get(names.LABEL_MIGRATED_FROM)
        for item in kube.objects(SERVICES)
    }
    assert owners == {"shop": None, "shop-v2": "shop-v2", part_name("shop", "v2", "beside v1"): "shop"}


async def test_applications_that_v1_serves_by_a_name_and_its_suffix_are_both_applied(kube: FakeKube) -> None:
    for name in ("shop", "shop-v2"):
        kube.put(APPLICATIONS, application(name))
        kube.put(SERVICES, reflected(name))
    await applied(kube)
    assert {done for _, done in await applied(kube)} == {"unchanged"}


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("others", [[], ["till"]], ids=["the last one", "one of two"])
async def test_objects_of_an_application_that_was_deleted_are_named(
    kube: FakeKube, others: list[str], complete: bool
) -> None:
    """Unless a lattice did not answer: its applications are unknown, and not deleted."""
    for name in ("shop", *others):
        kube.put(APPLICATIONS, application(name))
    await applied(kube)
    kube.remove(APPLICATIONS, "shop", "shop")
    found = await read.read(kube, "shop", None, from_wadm=False)
    result = await apply(kube, found.conversions, "shop", complete=complete)
    assert result.leftovers == ()
    expected = (
        "kubectl delete workloaddeployments.runtime.wasmcloud.dev,services,configmaps --namespace shop "
        "--selector 'trellis.dev/migrated-from in (shop)'"
    )
    assert result.orphans == ((expected,) if complete else ())


async def test_an_application_that_cannot_be_converted_any_more_is_not_deleted(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    await applied(kube)
    spoilt = application()
    spoilt["spec"]["components"][0]["type"] = "x"
    kube.put(APPLICATIONS, spoilt)
    found = await read.read(kube, "shop", None, from_wadm=False)
    result = await apply(kube, found.conversions, "shop", complete=True)
    assert (result.leftovers, result.orphans) == ((), ())


@pytest.mark.parametrize("label", [None, "till"], ids=["an object of a user", "an object of another application"])
async def test_an_object_of_another_owner_stops_everything(kube: FakeKube, label: str | None) -> None:
    kube.put(APPLICATIONS, application())
    labels = {names.LABEL_MIGRATED_FROM: label} if label else {}
    kube.put(WORKLOAD_DEPLOYMENTS, {"metadata": {"name": "shop", "namespace": "shop", "labels": labels}, "spec": {}})
    with pytest.raises(CommandError) as refused:
        await applied(kube)
    assert "WorkloadDeployment shop/shop" in str(refused.value)
    assert kube.writes == []


async def test_a_service_that_v1_creates_meanwhile_is_left_alone(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    found = await read.read(kube, "shop", None, from_wadm=False)
    kube.put(SERVICES, reflected())
    with pytest.raises(CommandError):
        await apply(kube, found.conversions, "shop", complete=True)
    assert kube.writes == []


async def test_an_object_that_appears_after_the_check_is_not_changed(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube.put(APPLICATIONS, application())
    foreign = {"metadata": {"name": "shop", "namespace": "shop", "labels": {"team": "other"}}, "spec": {"replicas": 3}}
    write = kube.apply_unless_owned

    async def after_another(res: Resource, manifest: Manifest, *, field_manager: str) -> Manifest:
        if res is WORKLOAD_DEPLOYMENTS:
            kube.put(WORKLOAD_DEPLOYMENTS, foreign)
        return await write(res, manifest, field_manager=field_manager)

    monkeypatch.setattr(kube, "apply_unless_owned", after_another)
    with pytest.raises(CommandError) as refused:
        await applied(kube)
    assert "WorkloadDeployment shop/shop" in str(refused.value)
    [found] = kube.objects(WORKLOAD_DEPLOYMENTS)
    assert (found["metadata"]["labels"], found["spec"]) == ({"team": "other"}, {"replicas": 3})


async def test_a_field_that_a_user_set_is_not_overwritten(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    await applied(kube)
    [workload] = kube.objects(WORKLOAD_DEPLOYMENTS)
    version = workload["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}}
    await kube.merge_patch(WORKLOAD_DEPLOYMENTS, "shop", patch, "shop", field_manager="kubectl")
    with pytest.raises(CommandError) as refused:
        await applied(kube)
    assert ".spec.replicas" in str(refused.value)
    assert kube.objects(WORKLOAD_DEPLOYMENTS)[0]["spec"]["replicas"] == 3


async def test_nothing_is_written_to_a_cluster_without_v2() -> None:
    kube = cluster()
    kube.put(APPLICATIONS, application())
    with pytest.raises(CommandError) as refused:
        await applied(kube)
    assert WORKLOAD_DEPLOYMENTS.definition in str(refused.value)
    assert kube.writes == []


async def test_the_removal_command_removes_what_was_written_and_nothing_else(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.put(APPLICATIONS, application())
    assert await command._run(SETTINGS, APPLY)
    shown = capsys.readouterr().out
    assert (
        "kubectl delete workloaddeployments.runtime.wasmcloud.dev,services,configmaps --namespace shop "
        "--selector 'trellis.dev/migrated-from in (shop)'"
    ) in shown
    for res in (SERVICES, WORKLOAD_DEPLOYMENTS, CONFIGMAPS):
        marked = (await kube.list(res, "shop", label_selector=names.LABEL_MIGRATED_FROM)).items
        assert len(marked) == len([item for item in kube.objects(res) if item["metadata"]["namespace"] == "shop"])


async def test_two_applications_that_convert_to_one_object_are_refused(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lattices can have an application of one name, and one namespace."""
    kube.put(APPLICATIONS, application("a"))
    kube.put(APPLICATIONS, application("a-of-b", **{names.ANNOTATION_APP_NAME: "a"}))
    with pytest.raises(CommandError):
        await applied(kube)
    assert kube.writes == []
    assert not await command._run(SETTINGS, PLAIN)
    assert "WorkloadDeployment shop/a" in capsys.readouterr().err


async def test_grants_that_may_not_be_read_are_unknown_and_noted(kube: FakeKube) -> None:
    kube.put(APPLICATIONS, application())
    forbidden = status_reply(403, "Forbidden", "no")
    kube.answer_next(1, lambda _: forbidden, when=lambda request: SECRET_GRANTS.plural in request.path)
    found = await read.read(kube, "shop", None, from_wadm=False)
    assert len(found.notes) == 1
    assert [item.key for item in found.conversions] == ["shop/shop"]


async def test_the_permissions_of_the_page_are_those_that_are_used(kube: FakeKube) -> None:
    """Those for the grants of secrets, in all namespaces, are named in the text."""
    made = application()
    made["spec"]["components"][0]["properties"]["config"] = [{"name": "texts", "properties": {"A": "1"}}]
    kube.put(APPLICATIONS, made)
    await applied(kube)
    found = await read.read(kube, "shop", None, from_wadm=False)
    await check(kube, found.conversions, found.services, "/")
    assert permissions_of(kube) - {("list", SECRET_GRANTS.group, SECRET_GRANTS.plural)} == {
        (verb, group, resource)
        for rule in role()["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_services_that_may_not_be_read_end_the_command(kube: FakeKube) -> None:
    """Without them, it is unknown which Services v1 has."""
    kube.put(APPLICATIONS, application())
    forbidden = status_reply(403, "Forbidden", "no")
    kube.answer_next(9, lambda _: forbidden, when=lambda request: request.path.endswith("/services"))
    with pytest.raises(Forbidden):
        await read.read(kube, "shop", None, from_wadm=False)


@pytest.mark.parametrize(
    ("changes", "deployed"),
    [({}, True), ({"annotations": {names.ANNOTATION_UNDEPLOY: "true"}}, False), ({"phase": "Undeployed"}, False)],
)
def test_an_application_is_deployed_by_default(changes: Mapping[str, Any], deployed: bool) -> None:
    found = application(**changes.get("annotations", {}))
    found["status"] = {"phase": changes.get("phase", "Deployed")}
    source, _ = read._of_object(found)
    assert source.deployed is deployed


class Wadm:
    """A wadm with one application that is deployed, one that is not, and one that is deleted meanwhile."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    async def models(self) -> tuple[Model, ...]:
        return Model("Web_1", "v2", deployed="v1"), Model("idle", "v3"), Model("gone", "v1")

    async def get(self, name: str, version: str | None = None) -> Mapping[str, Any] | None:
        self.asked.append((name, version))
        return None if name == "gone" else manifest(name)


@pytest.fixture
def wadm(monkeypatch: pytest.MonkeyPatch) -> Wadm:
    found = Wadm()

    @asynccontextmanager
    async def asking(_: object) -> AsyncIterator[Wadm]:
        yield found

    monkeypatch.setattr(read, "asking", asking)
    return found


async def test_manifests_of_wadm_are_those_that_are_deployed(kube: FakeKube, wadm: Wadm) -> None:
    found = await read.read(kube, None, None, from_wadm=True)
    assert sorted(wadm.asked, key=str) == [("Web_1", "v1"), ("gone", "v1"), ("idle", "v3")]
    assert [item.application for item in found.conversions] == ["Web_1", "idle"]
    assert [item.namespace for item in found.conversions] == ["shop", "shop"]
    reasons = {item.application: {line.reason.value for line in item.lines} for item in found.conversions}
    assert "NotDeployed" in reasons["idle"]
    assert "NotDeployed" not in reasons["Web_1"]


@pytest.mark.usefixtures("wadm")
async def test_workloads_of_a_lattice_are_in_the_namespace_that_is_its_home(kube: FakeKube) -> None:
    kube.put(HOST_CONFIGS, host_group("home", **{names.ANNOTATION_HOME: "true"}))
    found = await read.read(kube, None, None, from_wadm=True)
    assert {item.namespace for item in found.conversions} == {"home"}


class Silent:
    """A lattice without a connection."""

    async def __aenter__(self) -> Wadm:
        raise NatsUnavailableError("connection refused")

    async def __aexit__(self, *error: object) -> None:
        pass


@pytest.mark.usefixtures("kube")
async def test_a_lattice_that_does_not_answer_is_named_and_ends_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(read, "asking", lambda _: Silent())
    assert not await command._run(SETTINGS, Options(None, True, None, False, False, "/", Format.JSON))
    assert "default" in json.loads(capsys.readouterr().out)["unread"][0]


@pytest.mark.parametrize(
    "asked",
    [
        Options(None, False, None, True, True, "/", None),
        Options(None, False, "nats://x", False, False, "/", None),
        Options(None, False, None, False, True, "health", None),
    ],
)
def test_options_that_exclude_each_other_are_refused(asked: Options) -> None:
    with pytest.raises(SettingsError):
        command._require_valid(asked)


Handler = Callable[[web.Request], web.Response]


def endpoint(service: str, port: int, *, v2: bool, ready: bool = True) -> Manifest:
    labels = {names.LABEL_SERVICE_NAME: service}
    labels |= {"wasmcloud.dev/route-manager": "true"} if v2 else {names.LABEL_SLICE_MANAGED_BY: names.SLICE_MANAGED_BY}
    return {
        "metadata": {"name": f"{service}-{'v2' if v2 else 'v1'}", "namespace": "shop", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
    }


async def serving(answer: Handler) -> TestServer:
    async def handle(request: web.Request) -> web.Response:
        return answer(request)

    application_ = web.Application()
    application_.router.add_route("*", "/{path:.*}", handle)
    server = TestServer(application_)
    await server.start_server()
    return server


async def compared(kube: FakeKube, v1: Handler, v2: Handler, path: str = "/", v2_port: int = 0, **timings: Any) -> str:
    """Return the difference between two servers, one on each side of the application; ``v2_port``: of another one."""
    one, other = await serving(v1), await serving(v2)
    try:
        kube.put(APPLICATIONS, application())
        kube.put(SERVICES, reflected())
        kube.put(ENDPOINT_SLICES, endpoint("shop", one.port or 0, v2=False))
        kube.put(ENDPOINT_SLICES, endpoint("shop-v2", v2_port or other.port or 0, v2=True))
        found = await read.read(kube, "shop", None, from_wadm=False)
        [result] = await check(kube, found.conversions, found.services, path, CheckTimings(**timings))
        return result.difference
    finally:
        await one.close()
        await other.close()


def hello(request: web.Request) -> web.Response:
    return web.Response(text=f"hello {request.path}")


async def test_equal_answers_are_no_difference(kube: FakeKube) -> None:
    assert await compared(kube, hello, hello, "/health") == ""


async def test_both_sides_get_the_host_header_of_v2(kube: FakeKube) -> None:
    hosts: list[str] = []

    def note(request: web.Request) -> web.Response:
        hosts.append(request.headers["Host"])
        return web.Response()

    assert await compared(kube, note, note) == ""
    assert hosts == ["shop.shop.svc.cluster.local"] * 2


@pytest.mark.parametrize(
    "other",
    [lambda _: web.Response(status=404), lambda _: web.Response(text="other"), lambda _: web.Response(text="")],
    ids=["status", "body", "no body"],
)
async def test_another_status_or_body_is_a_difference(kube: FakeKube, other: Handler) -> None:
    assert await compared(kube, hello, other)


@pytest.mark.parametrize(("header", "status"), [("Location", 302), ("Content-Type", 200), ("Content-Encoding", 200)])
async def test_another_header_that_changes_the_meaning_is_a_difference(
    kube: FakeKube, header: str, status: int
) -> None:
    def answer(value: str) -> Handler:
        return lambda _: web.Response(status=status, headers={header: value})

    assert header in await compared(kube, answer("/one"), answer("/other"))
    assert await compared(kube, answer("/one"), answer("/one")) == ""


async def test_an_error_of_both_sides_is_no_equality(kube: FakeKube) -> None:
    def broken(_: web.Request) -> web.Response:
        return web.Response(status=502)

    assert "502" in await compared(kube, broken, broken)


async def test_a_404_without_a_body_is_no_equality(kube: FakeKube) -> None:
    """Hosts of v2 answer so for a Host header that no workload has."""
    assert "404" in await compared(kube, lambda _: web.Response(status=404), lambda _: web.Response(status=404))
    missing: Handler = lambda _: web.Response(status=404, text="no such item")  # noqa: E731
    assert await compared(kube, missing, missing) == ""


async def compared_with_bytes(kube: FakeKube, reply: bytes, **timings: Any) -> str:
    """Return the difference between a server and one that sends bytes, and nothing more until the client ends."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(send, LOOPBACK, 0) as server:
        return await compared(kube, hello, hello, v2_port=server.sockets[0].getsockname()[1], **timings)


async def test_an_answer_that_is_not_http_is_not_shown(kube: FakeKube) -> None:
    """It can contain a token."""
    for reply in (
        b"SSH-2.0-hunter2\r\n\r\n",
        b"HTTP/1.1 302 x\r\nLocation: /?t=hunter2" + b"x" * 100_000 + b"\r\n\r\n",
    ):
        difference = await compared_with_bytes(kube, reply)
        assert difference
        assert "hunter2" not in difference


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel"], ids=["nothing", "a part"])
async def test_a_server_that_hangs_is_not_called_unreachable(kube: FakeKube, reply: bytes) -> None:
    difference = await compared_with_bytes(kube, reply, answer=0.5)
    assert difference
    assert "unreachable" not in difference


async def test_a_server_that_refuses_is_called_unreachable(kube: FakeKube) -> None:
    [port] = free_ports(1)
    assert "unreachable" in await compared(kube, hello, hello, v2_port=port)


@pytest.mark.parametrize("output", [Format.JSON, None], ids=["json", "table"])
async def test_a_check_names_applications_that_it_does_not_compare(
    kube: FakeKube, capsys: pytest.CaptureFixture[str], output: Format | None
) -> None:
    spoilt, worker = application("bad"), application("worker")
    spoilt["spec"]["components"][0]["type"] = "x"
    del worker["spec"]["components"][1]
    kube.put(APPLICATIONS, spoilt)
    kube.put(APPLICATIONS, worker)
    assert not await command._run(SETTINGS, replace(CHECK, output=output))
    shown = capsys.readouterr()
    if output is None:
        assert "shop/bad" in shown.err
        assert "InvalidManifest" in shown.err
        assert "shop/worker" in shown.err
    else:
        found = json.loads(shown.out)["applications"]
        assert {item["application"]: item["ok"] for item in found} == {"bad": False, "worker": True}


async def test_a_redirect_is_compared_and_not_followed(kube: FakeKube) -> None:
    def moved(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://elsewhere.invalid/"})

    assert await compared(kube, moved, moved) == ""


async def test_bodies_beyond_the_limit_are_not_called_equal(kube: FakeKube) -> None:
    def long(_: web.Request) -> web.Response:
        return web.Response(text="x" * 100)

    assert await compared(kube, long, long, most=50)
    assert await compared(kube, long, long, most=100) == ""


async def test_a_check_ends_in_time(kube: FakeKube) -> None:
    """Nothing was requested: that is a difference, and no equality."""
    assert await compared(kube, hello, hello, total=0.0)


async def test_an_endpoint_that_is_missing_or_not_ready_is_a_difference(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.put(APPLICATIONS, application())
    kube.put(ENDPOINT_SLICES, endpoint("shop", 9, v2=True, ready=False))
    assert not await command._run(SETTINGS, CHECK)
    [route] = json.loads(capsys.readouterr().out)["routes"]
    assert (route["application"], route["host"]) == ("shop/shop", "shop.shop.svc.cluster.local")
    assert "problem" in route["v1"]
    assert "problem" in route["v2"]
    assert route["difference"]


async def test_each_route_is_compared_with_its_own_port_of_v1(kube: FakeKube) -> None:
    """The reflected Service has all ports of an application, each of its workloads on v2 a Service."""
    one, other = await serving(hello), await serving(lambda _: web.Response(text="api"))
    try:
        two = application()
        two["spec"]["components"] = [
            {"name": name, "type": "component", "properties": {"image": f"example.com/{name}:1"}}
            for name in ("ui", "api")
        ] + [capability("http", link(target={"name": "ui"}), link("0.0.0.0:8081", target={"name": "api"}))]
        kube.put(APPLICATIONS, two)
        service = reflected()
        service["spec"]["ports"].append({"name": "http-api", "port": 8081})
        kube.put(SERVICES, service)
        slice_ = endpoint("shop", one.port or 0, v2=False)
        slice_["ports"].append({"name": "http-api", "port": other.port})
        kube.put(ENDPOINT_SLICES, slice_)
        found = await read.read(kube, "shop", None, from_wadm=False)
        results = await check(kube, found.conversions, found.services, "/")
        assert [item.v1.body for item in results] == [b"hello /", b"api"]
    finally:
        await one.close()
        await other.close()


async def test_the_service_of_another_tenant_is_not_requested(kube: FakeKube) -> None:
    """Applications of two namespaces can have one name."""
    kube.put(APPLICATIONS, application())
    kube.put(SERVICES, reflected(namespace="other"))
    found = await read.read(kube, None, None, from_wadm=False)
    [result] = await check(kube, found.conversions, found.services, "/")
    assert result.v1.problem
    assert result.v1.address == ""
