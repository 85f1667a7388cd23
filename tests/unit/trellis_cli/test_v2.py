"""wasmCloud v2 on the command line: permissions, options, the row of `trellis status`, registries."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import certifi
import pytest

from support.suite.naming import lacking
from support.v2.components import component
from support.v2.explained import bare, kube_of
from support.v2.host_pods import OTHER, both, host_pod
from support.v2.recordings import SITUATIONS, recording
from trellis.config.settings import SettingsError
from trellis.kube.errors import NotFound, Unavailable
from trellis.kube.resources import (
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    WASM_HOSTS,
    WORKLOADS,
)
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.listen import Listened
from trellis.oci.manifests import digest_of
from trellis.read_model.errors import AnswerError
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import page_of
from trellis.read_model.reading.explained_v2 import SUBJECTS, explained_v2
from trellis.read_model.reading.find import ObjectNotFoundError
from trellis.read_model.reading.v2_snapshot import RESOURCES, read_snapshot
from trellis.registries.domain.errors import SourceError, SourceReason
from trellis.registries.web import Answer, Web
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import LABEL_DEPLOYMENT
from trellis.v2.explain.host_group import explain_host_group
from trellis.v2.host_messages import HostMessages
from trellis.v2.images import ImageAnswer, ImageKey, ImageState
from trellis.v2.interfaces import Interface
from trellis.v2.pods import POD_SELECTOR
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part
from trellis_cli.common.objects import ObjectName
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.v2 import page as pages
from trellis_cli.v2 import receive as receiving
from trellis_cli.v2.options import Flags, RegistryAccess, Sources, sources_of
from trellis_cli.v2.page import v2_page
from trellis_cli.v2.registries import MOST, ask_registries
from trellis_cli.v2.row import PART, v2_part
from trellis_cli.v2.status import read_v2
from trellis_dev.fakes.fake import FakeKube, status_reply

ALONE = Sources()


def forbid(kube: FakeKube, *plurals: str, wide: tuple[str, ...] = ()) -> None:
    """Refuse lists of these kinds; ``wide``: only those of all namespaces."""

    def refused(request: Any) -> bool:
        plural = request.path.rsplit("/", 1)[1]
        return plural in plurals or (plural in wide and "/namespaces/" not in request.path)

    why = 'workloads is forbidden: User "a" cannot list resource "{}" in API group "x" at the cluster scope'
    kube.answer_next(
        99,
        lambda request: status_reply(403, "Forbidden", why.format(request.path.rsplit("/", 1)[1])),
        when=refused,
    )


async def explained(kube: FakeKube, kind: str, name: str, sources: Sources = ALONE) -> Any:
    return await v2_page(Reading(kube, "trellis-system"), ObjectName(kind, name), sources)


async def test_a_page_is_read_with_all_parts() -> None:
    page = await explained(kube_of("09", 45), "workloaddeployment", "svc-unnamed")
    assert page.cause.reason == Reason.PORT_NOT_NAMED
    page = await explained(kube_of("12", 45), "whost", "uppity-son-5573")
    assert page.cause.reason == Reason.NATS_UNREACHABLE


async def test_an_object_beyond_the_limit_of_etcd_is_read_whole_and_uncounted_components_are_named() -> None:
    """A cluster can raise the limit of 1.5 MiB: nothing here has such a limit."""
    kube = kube_of("02", 6)
    [workload] = kube.objects(WORKLOADS)
    parts = [{"name": f"c{at}", "image": f"registry.test/{'x' * 1900}/{at}"} for at in range(1003)]
    spec = workload["spec"] | {"components": parts}
    named = {"name": "large", "namespace": "apps"}
    kube.put(WORKLOADS, workload | {"metadata": named, "spec": spec})
    assert len(json.dumps(kube.objects(WORKLOADS)[-1])) > 1.5 * 2**20
    page = await explained(kube, "workload", "large")
    [line] = [item for item in page.lines if item.about == "components"]
    assert lacking(line.text, "1000", "3") == []
    assert not line.trouble


async def test_an_object_that_does_not_exist_has_a_page_and_a_kind_that_is_not_served_an_error() -> None:
    with pytest.raises(ObjectNotFoundError):
        await explained(kube_of("02", 6), "workload", "hello")
    with pytest.raises(NotFound):
        await explained(bare(), "workload", "hello")


async def test_hosts_of_one_name_in_two_namespaces_have_to_be_named_with_the_namespace() -> None:
    kube = kube_of("02", 6)
    [host] = kube.objects(WASM_HOSTS)
    kube.put(WASM_HOSTS, {**host, "metadata": {"name": host["metadata"]["name"], "namespace": "apps"}})
    with pytest.raises(AnswerError, match=r"apps.*wasmcloud-system"):
        await explained(kube, "whost", "uppity-son-5573")
    reading = Reading(kube, "trellis-system")
    page = await v2_page(reading, ObjectName("whost", "uppity-son-5573", "wasmcloud-system"), ALONE)
    assert page.subject == "whost wasmcloud-system/uppity-son-5573"


async def test_an_account_of_one_namespace_gets_a_page_of_it() -> None:
    kube = kube_of("04", 20)
    forbid(kube, "hosts", wide=("workloads", "workloadreplicasets", "workloaddeployments", "artifacts"))
    reading = Reading(kube, "trellis-system")
    page = await v2_page(reading, ObjectName("workloaddeployment", "no-tag", "apps"), ALONE)
    assert page.cause is not None
    assert page.cause.reason == Reason.PULL_FAILED
    snapshot = await read_snapshot(reading, "apps")
    assert set(snapshot.unread) == {Part.HOSTS}
    assert set(snapshot.limited) == {Part.WORKLOADS}
    assert not snapshot.knows_all(Part.WORKLOADS)


@pytest.mark.parametrize("part", [Part.HOSTS, Part.SERVICES, Part.SLICES, Part.WORKLOADS, Part.REPLICA_SETS])
async def test_a_forbidden_list_is_a_note_and_no_absence(part: Part) -> None:
    kube = kube_of("02", 6)
    forbid(kube, RESOURCES[part].plural)
    page = await explained(kube, "workloaddeployment", "hello")
    assert page.cause is None
    assert any(
        lacking(line.text, f"{RESOURCES[part].plural}.x") == [] for line in page.lines if line.about == "permissions"
    )


async def test_services_are_read_in_the_namespace_of_the_object_only() -> None:
    kube = kube_of("02", 6)
    await explained(kube, "workloaddeployment", "hello")
    paths = {request.path for request in kube.api.requests if request.path.endswith(("/services", "/endpointslices"))}
    assert all("/namespaces/apps/" in path for path in paths)
    assert kube.writes == []


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_a_page_needs_no_more_than_the_parts_that_are_read_for_it(situation: str) -> None:
    kube = kube_of(situation, recording(situation).end)
    everything = await read_snapshot(Reading(kube, "trellis-system"), None)
    for kind, (res, _) in SUBJECTS.items():
        for item in kube.objects(res):
            name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
            page = await v2_page(Reading(kube, "trellis-system"), ObjectName(kind, name, namespace), ALONE)
            assert page.document() == explained_v2(everything, kind, item, Beside()).document()
    for group in Cluster(everything).host_groups.values():
        assert await explained(kube, "whostgroup", group.name) == explain_host_group(everything, group, Beside())


async def test_the_page_of_a_deployment_lists_no_objects_of_other_deployments() -> None:
    kube = kube_of("04", 20)
    await explained(kube, "workloaddeployment", "no-tag")
    queries = {request.path.rsplit("/", 1)[1]: request.query for request in kube.api.requests}
    assert queries["workloaddeployments"]["fieldSelector"] == "metadata.name=no-tag"
    assert queries["workloadreplicasets"]["labelSelector"] == f"{LABEL_DEPLOYMENT}=no-tag"
    assert len(kube.api.requests) == 9
    kube.api.requests.clear()
    await explained(kube, "whostgroup", "default")
    assert {request.path.rsplit("/", 1)[1] for request in kube.api.requests} == {"hosts", "workloads", "pods"}


async def test_heartbeats_are_received_before_kubernetes_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kube, asked = kube_of("12", 96), []

    async def receive(address: NatsAddress, hosts: list[str], now: Any, *, replies: bool) -> HostMessages:
        asked.append((address.url, len(hosts), replies, now()))
        kube.api.requests.clear()
        return recording("12").messages(75, 96, replies=replies)

    monkeypatch.setattr(receiving, "receive", receive)
    sources = Sources(NatsAddress("nats://here"), replies=True)
    page = await explained(kube, "whost", "uppity-country-8876", sources)
    assert page.cause.reason == Reason.UNKNOWN_WORKLOADS
    assert asked == [("nats://here", 2, True, kube.now())]
    assert any(request.path.endswith("/workloads") for request in kube.api.requests)


@pytest.mark.parametrize(
    ("result", "named"),
    [
        (Listened(error="not-this-ca", untrusted=True), "TRELLIS_V2_NATS_CA_FILE"),
        (Listened(error="refused"), "--v2-nats"),
        (Listened(seconds=20), ""),
    ],
    ids=["another CA", "no server", "received"],
)
async def test_a_nats_that_cannot_be_read_has_its_resolution(
    monkeypatch: pytest.MonkeyPatch, result: Listened, named: str
) -> None:
    async def listen(*_: Any) -> Listened:
        return result

    monkeypatch.setattr(receiving, "listen", listen)
    messages = await receiving.receive(NatsAddress("tls://here"), ["h1"], lambda: 0.0)
    assert messages.error == result.error
    assert named in messages.resolution
    assert bool(messages.resolution) is bool(result.error)


async def test_no_wasmcloud_v2_is_no_row_and_costs_one_request() -> None:
    kube = bare()
    assert await read_v2(kube, "trellis-system") is None
    assert len(kube.api.requests) == 1


async def test_another_version_is_an_unknown_row() -> None:
    kube = bare()
    kube.define(replace(WORKLOADS, version="v2beta7"))
    part = await read_v2(kube, "trellis-system")
    assert part is not None
    assert part.ok is None
    assert lacking(part.unread, "v2beta7", "v1alpha1") == []


async def test_a_row_counts_and_has_the_causes_of_the_pages() -> None:
    part = await read_v2(kube_of("04", 20), "trellis-system")
    assert part is not None
    assert (part.name, part.ok) == (PART, False)
    assert (part.data["deployments"], part.data["hosts"], part.data["artifacts"]) == (7, 2, 0)
    failed = {f"workloaddeployment/apps/{name}" for name in ("garbage", "no-dns", "no-repo", "no-tag", "refused")}
    assert set(part.data["unhealthy"]) == failed
    page = await explained(kube_of("04", 20), "workloaddeployment", "no-tag")
    assert part.data["causes"]["workloaddeployment/apps/no-tag"] == page.cause.text
    assert "`trellis explain workloaddeployment/" in part.problem


def put(kube: FakeKube, *pods: dict[str, Any]) -> FakeKube:
    for pod in pods:
        kube.put(PODS, pod)
    return kube


async def test_a_row_has_the_host_groups_with_the_causes_of_their_pages() -> None:
    kube = put(kube_of("03", 20), *both(), host_pod("c", OTHER, "CrashLoopBackOff"))
    part = await read_v2(kube, "trellis-system")
    assert part is not None
    assert (part.data["host_groups"], part.data["unhealthy"]) == (1, ["whostgroup/wasmcloud-system/default"])
    page = await explained(kube, "whostgroup", "default")
    assert part.data["causes"]["whostgroup/wasmcloud-system/default"] == page.cause.text
    assert (page.subject, page.cause.reason) == ("whostgroup wasmcloud-system/default", Reason.POD_CRASHING)


async def test_only_pods_of_host_groups_are_read_and_only_with_wasmcloud_v2() -> None:
    kube = put(kube_of("03", 20), *both())
    await read_v2(kube, "trellis-system")
    reads = [request for request in kube.api.requests if request.path.endswith("/pods")]
    assert {request.query.get("labelSelector") for request in reads} == {POD_SELECTOR}
    kube = bare()
    await read_v2(kube, "trellis-system")
    assert not [request for request in kube.api.requests if request.path.endswith("/pods")]


async def test_pods_that_are_forbidden_are_an_unread_row_and_an_unknown_host_group() -> None:
    kube = put(kube_of("03", 20), *both())
    forbid(kube, "pods")
    part = await read_v2(kube, "trellis-system")
    assert part is not None
    assert (part.ok, part.data["host_groups"], part.data["unhealthy"]) == (None, None, [])
    assert lacking(part.unread, "pods") == []
    page = await explained(kube, "whostgroup", "default")
    assert (page.cause.reason, page.verdict.health) == (Reason.PODS_UNKNOWN, Health.UNKNOWN)
    with pytest.raises(AnswerError) as error:
        await explained(kube, "whostgroup", "edge")
    assert lacking(str(error.value), "edge", "list pods") == []


async def test_pods_in_the_namespaces_of_hosts_suffice() -> None:
    elsewhere = host_pod("far", OTHER, namespace="apps")
    kube = put(kube_of("03", 20), *both(), elsewhere)
    forbid(kube, wide=("pods",))
    snapshot = await read_snapshot(Reading(kube, "trellis-system"), None)
    assert {pod.meta.name for pod in snapshot.pods} == {"default-a", "default-b"}
    assert {*snapshot.limited} == {Part.PODS}
    page = await explained(kube, "whostgroup", "default")
    assert page.cause is None


async def test_a_host_group_that_does_not_exist_has_a_page_with_similar_ones() -> None:
    kube = put(kube_of("03", 20), *both())
    with pytest.raises(ObjectNotFoundError) as error:
        await explained(kube, "whostgroup", "defautl")
    assert lacking(error.value.page.headline, "wasmcloud-system/default") == []


async def test_a_healthy_row_and_one_without_permissions() -> None:
    healthy = await read_v2(kube_of("02", 6), "trellis-system")
    assert healthy is not None
    assert healthy.ok is True
    kube = kube_of("02", 6)
    forbid(kube, "hosts", "workloads")
    unknown = await read_v2(kube, "trellis-system")
    assert unknown is not None
    assert unknown.ok is None
    assert unknown.data["hosts"] is None
    assert lacking(unknown.unread, "hosts.x", "workloads.x") == []


def test_an_operator_without_nats_is_one_problem() -> None:
    part = v2_part(recording("12").snapshot(45))
    assert not part.ok
    assert "NATS" in part.problem


@pytest.mark.parametrize("at", [33.5, 45, 66])
def test_an_outage_is_one_problem_and_not_one_of_each_object(at: float) -> None:
    part = v2_part(recording("12").snapshot(at))
    assert not part.ok
    assert part.data["unhealthy"] == []


async def test_an_outage_of_the_api_server_is_the_callers() -> None:
    kube = kube_of("02", 6)
    kube.fail_next(99)
    with pytest.raises(Unavailable):
        await read_v2(kube, "trellis-system")


def settings(**given: Any) -> ClientSettings:
    return client_settings(v2_nats=given.get("url"))


def test_options_select_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert sources_of(settings(), "whost", Flags()) == Sources()
    ca = tmp_path / "ca.pem"
    authorities = Path(certifi.where()).read_text(encoding="ascii", errors="ignore")
    ca.write_text(authorities)
    monkeypatch.setenv("TRELLIS_V2_NATS_CA_FILE", str(ca))
    flags = Flags(nats=True, replies=True, registry=True, insecure=["Registry.local:5000", "registry.test:80"])
    found = sources_of(settings(url="nats://here:4222"), "whost", flags)
    access = RegistryAccess(insecure=frozenset({"registry.local:5000", "registry.test"}))
    assert found == Sources(NatsAddress("nats://here:4222", authorities=authorities), replies=True, registry=access)


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("node", {"registry": True}, ["--v2-registry", "whost"]),
        ("node", {"replies": True}, ["--v2-replies", "whost"]),
        ("node", {"nats": True}, ["--v2-nats", "whost"]),
        ("node", {"insecure": ["r.test"]}, ["--v2-insecure-registry", "whost"]),
        ("whost", {"replies": True}, ["--v2-replies", "--v2-nats"]),
        ("whost", {"insecure": ["r.test"]}, ["--v2-insecure-registry", "--v2-registry"]),
        ("whost", {"ca_file": Path("ca.pem")}, ["--v2-registry-ca-file", "--v2-registry"]),
        ("whost", {"registry": True, "insecure": ["http://r.test"]}, ["--v2-insecure-registry", "http://r.test"]),
        ("whost", {"registry": True, "ca_file": Path("no.pem")}, ["--v2-registry-ca-file", "no.pem"]),
        ("whost", {"registry": True, "ca_file": Path(__file__)}, ["--v2-registry-ca-file", "test_v2.py"]),
    ],
)
def test_options_that_do_not_fit_are_refused(kind: str, given: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(SettingsError) as raised:
        sources_of(settings(), kind, Flags(**given))
    assert lacking(raised.value, *named) == []


@pytest.mark.parametrize("name", ["CA", "CERTIFICATE", "CREDENTIALS"])
def test_files_of_nats_that_cannot_be_used_are_an_error_of_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "file"
    file.write_text("hunter2")
    monkeypatch.setenv(f"TRELLIS_V2_NATS_{name}_FILE", str(file))
    with pytest.raises(SettingsError) as raised:
        sources_of(settings(url="nats://here"), "whost", Flags(nats=True))
    assert lacking(raised.value, f"TRELLIS_V2_NATS_{name}_FILE", str(file)) == []
    assert "hunter2" not in str(raised.value)


class FakeWeb(Web):
    """A registry. ``answers``: by path; other paths are 404."""

    def __init__(self, answers: Mapping[str, Answer | Exception]) -> None:
        super().__init__()
        self.answers, self.sent = answers, list[tuple[str, str]]()

    async def get(self, url: str, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
        del more
        self.sent.append((url, (headers or {}).get("Authorization", "")))
        found = self.answers.get(url.partition("/v2/")[2], Answer(404, {}, b""))
        if isinstance(found, Exception):
            raise found
        return found


WASM = component(imports=["wasi:http/outgoing-handler@0.2.2"], exports=["wasi:http/incoming-handler@0.2.2"])
MANIFEST = json.dumps({"layers": [{"mediaType": "application/wasm", "digest": digest_of(WASM), "size": len(WASM)}]})
IMAGE = "registry.test/team/app:1"
KEY = ImageKey("apps", IMAGE)
GOOD = {
    "team/app/manifests/1": Answer(200, {}, MANIFEST.encode()),
    f"team/app/blobs/{digest_of(WASM)}": Answer(200, {}, WASM),
}


async def answer(answers: Mapping[str, Answer | Exception], key: ImageKey = KEY, kube: FakeKube | None = None) -> Any:
    web = FakeWeb(answers)
    found = await ask_registries(Reading(kube or bare(), "trellis-system"), {key}, web=web)
    return found[key], web


async def test_an_image_that_exists_is_read() -> None:
    found, web = await answer(GOOD)
    assert found.state is ImageState.FOUND
    assert found.types.exports == {Interface("wasi", "http", "incoming-handler", "0.2.2")}
    assert all(login == "" for _, login in web.sent)


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ({}, ImageState.NOT_FOUND),
        ({"team/app/manifests/1": Answer(403, {}, b"")}, ImageState.DENIED),
        ({"team/app/manifests/1": Answer(401, {"WWW-Authenticate": "Negotiate"}, b"")}, ImageState.DENIED),
        ({"team/app/manifests/1": Answer(500, {}, b"")}, ImageState.UNKNOWN),
        ({"team/app/manifests/1": SourceError(SourceReason.UNAVAILABLE, "refused")}, ImageState.UNKNOWN),
        ({"team/app/manifests/1": Answer(200, {}, b"garbage")}, ImageState.FOUND),
    ],
)
async def test_answers_of_registries(answers: dict[str, Answer | Exception], state: ImageState) -> None:
    found, _ = await answer(answers)
    assert found.state is state
    assert found.types is None


async def test_text_that_is_no_reference_is_invalid() -> None:
    found, web = await answer({}, ImageKey("apps", "Not A Reference"))
    assert found.state is ImageState.INVALID
    assert web.sent == []


async def test_a_digest_that_hosts_verify_and_this_command_does_not_is_unknown() -> None:
    found, web = await answer({}, ImageKey("apps", f"registry.test/team/app@sha512:{'a' * 128}"))
    assert found.state is ImageState.UNKNOWN
    assert web.sent == []
    short, _ = await answer({}, ImageKey("apps", f"registry.test/team/app@sha512:{'a' * 64}"))
    assert short.state is ImageState.INVALID


def with_secret(config: object) -> FakeKube:
    kube = bare()
    kube.put(NAMESPACES, {"metadata": {"name": "apps"}})
    data = {".dockerconfigjson": base64.b64encode(json.dumps(config).encode()).decode()}
    kube.put(SECRETS, {"metadata": {"namespace": "apps", "name": "pull"}, "data": data})
    return kube


async def test_the_login_of_the_workload_is_used_and_never_shown() -> None:
    kube = with_secret({"auths": {"registry.test": {"username": "u", "password": "hunter2"}}})
    challenge = {"team/app/manifests/1": Answer(401, {"WWW-Authenticate": "Basic"}, b"")}
    found, web = await answer(challenge, replace(KEY, secret="pull"), kube)
    assert found.state is ImageState.DENIED
    assert web.sent[-1][1].startswith("Basic ")
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("kube", [bare(), with_secret([]), with_secret({"auths": [1]})])
async def test_without_credentials_the_answer_is_unknown_and_no_registry_is_queried(kube: FakeKube) -> None:
    found, web = await answer(GOOD, replace(KEY, secret="pull"), kube)
    assert found.state is ImageState.UNKNOWN
    assert lacking(found.detail, "apps/pull") == []
    assert web.sent == []


@pytest.mark.parametrize("config", [{}, {"auths": {"other.test": {"username": "u", "password": "hunter2"}}}])
@pytest.mark.parametrize(("answers", "state"), [(GOOD, ImageState.FOUND), ({}, ImageState.NOT_FOUND)])
async def test_a_pull_secret_without_a_login_for_the_registry_is_asked_without_one(
    config: object, answers: dict[str, Answer], state: ImageState
) -> None:
    """The runtime-operator passes an empty login to the host in this case."""
    found, web = await answer(answers, replace(KEY, secret="pull"), with_secret(config))
    assert (found.state, found.without_login) == (state, True)
    assert {login for _, login in web.sent} == {""}


async def test_a_login_for_one_path_of_a_registry_is_that_of_the_registry() -> None:
    """The runtime-operator compares registries only."""
    kube = with_secret({"auths": {"registry.test/other": {"username": "u", "password": "hunter2"}}})
    challenge = {"team/app/manifests/1": Answer(401, {"WWW-Authenticate": "Basic"}, b"")}
    found, web = await answer(challenge, replace(KEY, secret="pull"), kube)
    assert (found.state, found.without_login) == (ImageState.DENIED, False)
    assert web.sent[-1][1].startswith("Basic ")


async def test_a_pull_secret_of_another_registry_is_the_cause_of_a_denial() -> None:
    kube = kube_of("04", 20)
    data = base64.b64encode(json.dumps({"auths": {"other.test": {"username": "u", "password": "hunter2"}}}).encode())
    kube.put(SECRETS, {"metadata": {"namespace": "apps", "name": "pull"}, "data": {".dockerconfigjson": data.decode()}})
    for item in kube.objects(WORKLOADS):
        for part in item["spec"]["components"]:
            part |= {"image": IMAGE, "imagePullSecret": {"name": "pull"}}
        kube.put(WORKLOADS, item)
    [workload] = [it for it in kube.objects(WORKLOADS) if it["metadata"]["name"].startswith("no-tag-")]
    reading = Reading(kube, "trellis-system")
    snapshot = await read_snapshot(reading, "apps")
    for answers, reason in (
        ({"team/app/manifests/1": Answer(401, {"WWW-Authenticate": "Basic"}, b"")}, Reason.REGISTRY_DENIED),
        (GOOD, Reason.PULL_FAILED),
    ):
        images = await ask_registries(reading, {replace(KEY, secret="pull")}, web=FakeWeb(answers))
        page = explained_v2(replace(snapshot, images=images), "workload", workload, Beside())
        assert page.cause is not None
        assert page.cause.reason == reason
        assert lacking(page.headline, "Secret pull", "login", "registry.test") == []
        assert "hunter2" not in page.headline


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("nginx", "library/nginx/manifests/latest"),
        ("team/app:1", "team/app/manifests/1"),
        ("docker.io/nginx:1", "library/nginx/manifests/1"),
        ("index.docker.io/nginx:1", "library/nginx/manifests/1"),
        ("docker.io/team/app:1", "team/app/manifests/1"),
    ],
)
async def test_an_image_of_docker_hub_is_asked_for_as_hosts_read_it(image: str, path: str) -> None:
    _, web = await answer({}, ImageKey("apps", image))
    assert {url for url, _ in web.sent} == {f"https://registry-1.docker.io/v2/{path}"}


async def test_registries_are_asked_about_few_images() -> None:
    images = {replace(KEY, image=f"registry.test/team/app:{number}") for number in range(MOST + 5)}
    found = await ask_registries(Reading(bare(), "trellis-system"), images, web=FakeWeb({}))
    assert len(found) == MOST


async def test_a_registry_is_asked_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    image = ImageKey("apps", "127.0.0.1:25000/demo/hello:nine")
    asked: list[set[ImageKey]] = []

    async def answers(_reading: Reading, images: set[ImageKey], _access: object) -> dict[ImageKey, ImageAnswer]:
        asked.append(images)
        return {image: ImageAnswer(ImageState.NOT_FOUND)}

    monkeypatch.setattr(pages, "_answers", answers)
    page = await explained(kube_of("04", 20), "workloaddeployment", "no-tag")
    assert (page.cause.reason, asked) == (Reason.PULL_FAILED, [])
    page = await explained(kube_of("04", 20), "workloaddeployment", "no-tag", Sources(registry=RegistryAccess()))
    assert (page.cause.reason, asked) == (Reason.IMAGE_NOT_FOUND, [{image}])


async def service_page(kube: FakeKube, name: str, namespace: str = "apps") -> tuple[str, str]:
    page = await page_of(Reading(kube, "trellis-system"), "installers", "service", name, namespace)
    return page.verdict.health.value, page.verdict.reason


async def test_a_service_of_a_workload_has_the_page_of_its_endpoints() -> None:
    assert await service_page(kube_of("09", 30), "svc-unnamed") == ("Degraded", Reason.PORT_NOT_NAMED)
    assert await service_page(kube_of("09", 30), "svc-named") == ("Healthy", Reason.HEALTHY)
    assert await service_page(kube_of("09b", 20), "svc-loop") == ("Degraded", Reason.ADDRESS_NOT_ROUTABLE)


async def test_a_service_of_another_project_reflects_no_application() -> None:
    without = bare()
    without.put(NAMESPACES, {"metadata": {"name": "apps"}})
    for found in (kube_of("09", 30), without):
        found.put(SERVICES, {"metadata": {"name": "other", "namespace": "apps"}, "spec": {"ports": [{"port": 80}]}})
        assert await service_page(found, "other") == ("Unknown", "NotReflected")


async def test_a_service_whose_workloads_cannot_be_read_is_unknown() -> None:
    kube = kube_of("09", 30)
    forbid(kube, "workloads")
    assert await service_page(kube, "svc-unnamed") == ("Unknown", Reason.READ_INCOMPLETE)
