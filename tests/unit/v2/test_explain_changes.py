"""Variations of the recorded situations: other inputs, missing permissions, and what is green and wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.components import component
from support.v2.recordings import deployment, host, recording, workloads
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.components import ComponentTypes, read_component
from trellis.v2.deployments import ReplicaSetView, view_deployment
from trellis.v2.explain.artifact import artifact_health, explain_artifact
from trellis.v2.explain.deployment import deployment_cause, deployment_health, explain_deployment
from trellis.v2.explain.host import explain_host, host_health
from trellis.v2.explain.workload import explain_workload, workload_health
from trellis.v2.host_messages import HostMessages, LastHeartbeat
from trellis.v2.hosts import HostView
from trellis.v2.images import ImageAnswer, ImageKey, ImageState
from trellis.v2.interfaces import Interface
from trellis.v2.messages import HostHeartbeat
from trellis.v2.operator import Judgement, State, judge
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import PartView

SON = "uppity-son-5573"
HELLO = ImageKey("apps", "127.0.0.1:25000/demo/hello:1")
HANDLER = "wasi:http/incoming-handler@0.2.2"
OUTGOING = "wasi:http/outgoing-handler@0.2.2"


def types(imports: list[str] | None = None, exports: list[str] | None = None) -> ComponentTypes:
    found = read_component(component(imports or [], exports or []))
    assert found is not None
    return found


def found_image(image: str, **kinds: list[str]) -> dict[ImageKey, ImageAnswer]:
    return {ImageKey("apps", image): ImageAnswer(ImageState.FOUND, types=types(**kinds))}


def page(snapshot: Snapshot, name: str) -> Explanation:
    return explain_deployment(snapshot, deployment(snapshot, name), Beside())


def reason(page: Explanation) -> str | None:
    return page.cause.reason if page.cause is not None else None


@pytest.mark.parametrize(
    ("at", "name", "images", "expected", "health"),
    [
        (14, "no-interface", found_image(HELLO.image, exports=[HANDLER]), Reason.HTTP_NOT_DECLARED, Health.DEGRADED),
        (14, "no-interface", found_image(HELLO.image, exports=["wasi:cli/run@0.2.0"]), None, Health.HEALTHY),
    ],
)
def test_a_component_that_serves_http_without_an_interface(
    at: float, name: str, images: dict[ImageKey, ImageAnswer], expected: Reason | None, health: Health
) -> None:
    found = page(recording("06").snapshot(at, images=images), name)
    assert reason(found) == expected
    assert found.verdict.health is health


def test_a_component_without_a_handler_is_ready_and_wrong_if_its_image_was_read() -> None:
    image = "127.0.0.1:25000/demo/nohandler:1"
    assert reason(page(recording("04").snapshot(20), "no-handler")) is None
    found = page(recording("04").snapshot(20, images=found_image(image)), "no-handler")
    assert reason(found) == Reason.HANDLER_MISSING
    assert found.verdict.health is Health.DEGRADED


def test_a_service_of_a_workload_can_have_the_handler() -> None:
    image, key = "127.0.0.1:25000/demo/nohandler:1", ImageKey("apps", "registry.test/service:1")
    snapshot = recording("04").snapshot(20, images=found_image(image))
    served = [
        replace(item, spec=replace(item.spec, daemon=PartView("service", key.image))) for item in snapshot.workloads
    ]
    for exports, expected in (([HANDLER], None), (["wasi:cli/run@0.2.0"], Reason.HANDLER_MISSING)):
        images = {**snapshot.images, key: ImageAnswer(ImageState.FOUND, types=types(exports=exports))}
        assert reason(page(replace(snapshot, workloads=served, images=images), "no-handler")) == expected


def test_denied_egress_is_a_warning_if_the_component_imports_http() -> None:
    image = "127.0.0.1:25000/demo/egress:1"
    images = found_image(image, imports=[OUTGOING], exports=[HANDLER])
    found = page(recording("16").snapshot(20, images=images), "egress-none")
    assert reason(found) == Reason.EGRESS_DENIED
    assert found.verdict.health is Health.HEALTHY
    assert lacking(found.headline, "healthy", "allowedHosts") == []
    assert reason(page(recording("16").snapshot(20, images=images), "egress-other")) is None
    quiet = found_image(image, exports=[HANDLER])
    assert reason(page(recording("16").snapshot(20, images=quiet), "egress-none")) is None


def test_an_undeclared_import_is_found_in_the_image() -> None:
    image = "127.0.0.1:25000/demo/widget:1"
    images = found_image(image, imports=["acme:widgets/gizmo@1.0.0"], exports=[HANDLER])
    found = page(recording("06").snapshot(14, images=images), "widget-undeclared")
    assert reason(found) == Reason.INTERFACE_MISSING
    assert lacking(found.headline, "acme:widgets/gizmo@1.0.0") == []


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ImageState.NOT_FOUND, Reason.IMAGE_NOT_FOUND),
        (ImageState.DENIED, Reason.REGISTRY_DENIED),
        (ImageState.INVALID, Reason.IMAGE_INVALID),
        (ImageState.UNKNOWN, Reason.PULL_FAILED),
        (ImageState.FOUND, Reason.PULL_FAILED),
    ],
)
def test_the_answer_of_the_registry_is_the_cause_without_a_reply(state: ImageState, expected: Reason) -> None:
    image = ImageKey("apps", "127.0.0.1:25000/demo/hello:nine")
    found = page(recording("04").snapshot(20, images={image: ImageAnswer(state)}), "no-tag")
    assert reason(found) == expected


@pytest.mark.parametrize("state", [ImageState.WITHOUT_TLS, ImageState.NOT_TRUSTED, ImageState.UNKNOWN])
def test_a_registry_that_cannot_be_asked_is_named_and_no_image_is_missing(state: ImageState) -> None:
    image = ImageKey("apps", "127.0.0.1:25000/demo/hello:nine")
    snapshot = recording("04").snapshot(20, images={image: ImageAnswer(state, "the reason and --v2-a-flag")})
    found = page(snapshot, "no-tag")
    assert reason(found) == Reason.PULL_FAILED
    assert lacking(found.headline, "the reason and --v2-a-flag") == []


OTHER = "registry.local:5000/demo/hello:1"


def of_other_registry(image: str = OTHER) -> tuple[Snapshot, ImageKey]:
    """Return a situation whose Workload without an image, like its deployment, refers to another registry."""
    snapshot = recording("04").snapshot(20)
    changed = [
        replace(
            item, spec=replace(item.spec, components=tuple(replace(it, image=image) for it in item.spec.components))
        )
        if item.meta.owner_name.startswith("no-tag-")
        else item
        for item in snapshot.workloads
    ]
    return replace(snapshot, workloads=changed), ImageKey("apps", image)


def test_an_image_in_a_registry_without_tls_is_refused_by_a_host_that_requires_it() -> None:
    snapshot, key = of_other_registry()
    answer = ImageAnswer(ImageState.FOUND, types=types(exports=[HANDLER]), plain=True)
    found = page(replace(snapshot, images={key: answer}), "no-tag")
    assert reason(found) == Reason.REGISTRY_WITHOUT_TLS
    assert lacking(found.headline, "registry.local:5000", SON, "--allow-insecure-registries") == []
    for other in (replace(answer, plain=False), replace(answer, types=None)):
        assert reason(page(replace(snapshot, images={key: other}), "no-tag")) == Reason.PULL_FAILED


def test_a_host_that_runs_workloads_of_a_registry_without_tls_does_not_refuse_it() -> None:
    snapshot, key = of_other_registry("127.0.0.1:25000/demo/hello:nine")
    answer = ImageAnswer(ImageState.FOUND, types=types(exports=[HANDLER]), plain=True)
    assert reason(page(replace(snapshot, images={key: answer}), "no-tag")) == Reason.PULL_FAILED


def test_the_names_that_a_workload_answers_to_are_listed() -> None:
    [line] = [line for line in page(recording("02").snapshot(6), "hello").lines if line.about == "names"]
    assert lacking(line.text, "hello.test", "hello.apps", "hello.apps.svc", "hello.apps.svc.cluster.local", "404") == []
    assert line.ok is None


FULL = "hello.apps.svc.cluster.local"


@pytest.mark.parametrize(
    ("change", "answered", "refused"),
    [
        pytest.param({"host": FULL}, ["hello.apps", "hello.apps.svc", FULL], ["hello"], id="the converted host"),
        pytest.param(
            {"interfaces": frozenset({Interface("wasi", "http", "handler", "0.3.0")})},
            ["hello.test"],
            ["hello", "hello.apps", "hello.apps.svc", FULL],
            id="wasi:http 0.3, which has no aliases",
        ),
        pytest.param(
            {"host": "", "layered": True}, ["hello.apps", "hello.apps.svc"], [], id="a host that is not known"
        ),
    ],
)
def test_the_names_that_are_answered_with_404_are_the_other_ones(
    change: dict[str, Any], answered: list[str], refused: list[str]
) -> None:
    snapshot = recording("02").snapshot(6)
    changed = [
        replace(item, spec=replace(item.spec, interfaces=tuple(replace(it, **change) for it in item.spec.interfaces)))
        for item in snapshot.workloads
    ]
    [line] = [line for line in page(replace(snapshot, workloads=changed), "hello").lines if line.about == "names"]
    good, _, bad = line.text.partition(";")
    assert sorted(re.findall(r"hello[a-z.]*", good)) == sorted(answered)
    assert re.findall(r"hello[a-z.]*", bad) == refused


def test_a_service_that_does_not_exist() -> None:
    snapshot = recording("02").snapshot(6)
    found = page(replace(snapshot, services=()), "hello")
    assert reason(found) == Reason.SERVICE_NOT_FOUND
    assert lacking(found.headline, "apps/hello") == []


def test_missing_endpoints_without_another_cause() -> None:
    snapshot = recording("02").snapshot(6)
    assert reason(page(replace(snapshot, slices=(), now=snapshot.now + 1), "hello")) == Reason.NO_ENDPOINTS
    empty = [replace(piece, addresses=frozenset()) for piece in snapshot.slices]
    assert reason(page(replace(snapshot, slices=empty, now=snapshot.now + 1), "hello")) == Reason.NO_ENDPOINTS


def test_missing_endpoints_of_a_host_without_an_http_port() -> None:
    snapshot = recording("02").snapshot(6)
    closed = [replace(item, port=None) for item in snapshot.hosts]
    found = page(replace(snapshot, slices=(), hosts=closed, now=snapshot.now + 1), "hello")
    assert reason(found) == Reason.ADDRESS_NOT_ROUTABLE
    assert lacking(found.headline, SON, "--http-addr") == []


def test_a_host_at_another_port_than_the_endpoints_is_named() -> None:
    """The operator takes the port of any of the hosts for the whole EndpointSlice."""
    snapshot = recording("03").snapshot(20)
    assert reason(page(snapshot, "hello")) is None
    moved = [replace(item, port=9999) if item.meta.name == SON else item for item in snapshot.hosts]
    found = page(replace(snapshot, hosts=moved), "hello")
    assert reason(found) == Reason.PORT_DIFFERS
    assert lacking(found.headline, SON, "9999", "8180") == []
    closed = [replace(item, port=None) if item.meta.name == SON else item for item in snapshot.hosts]
    assert reason(page(replace(snapshot, hosts=closed), "hello")) is None


UNREAD = {
    Part.SERVICES: ("09", 30, "svc-unnamed"),
    Part.SLICES: ("09", 45, "svc-late"),
    Part.HOSTS: ("00", 5, "lonely"),
    Part.WORKLOADS: ("04", 20, "no-tag"),
    Part.REPLICA_SETS: ("04", 20, "no-tag"),
}


@pytest.mark.parametrize("part", UNREAD)
def test_nothing_is_concluded_from_what_cannot_be_read(part: Part) -> None:
    situation, at, name = UNREAD[part]
    found = page(recording(situation).snapshot(at, unread={part: "list-forbidden"}), name)
    absent = {Reason.NO_HOST, Reason.SERVICE_NOT_FOUND, Reason.NO_ENDPOINTS, Reason.SERVICE_NEWER}
    assert reason(found) not in absent | {Reason.PORT_NOT_NAMED}
    assert any("list-forbidden" in line.text for line in found.lines)
    if part in {Part.WORKLOADS, Part.REPLICA_SETS}:
        assert found.verdict.health is Health.UNKNOWN


def test_a_host_that_cannot_be_read_is_not_one_that_does_not_exist() -> None:
    found = page(recording("07").snapshot(15, unread={Part.HOSTS: "forbidden"}), "pinned")
    assert reason(found) == Reason.HOSTS_UNKNOWN


def test_an_operator_that_records_no_heartbeat_is_found_by_listening() -> None:
    snapshot = recording("13").snapshot(15.2, listened=15.2)
    assert Cluster(snapshot).operator.state is State.UNAVAILABLE
    found = page(snapshot, "hello")
    assert reason(found) == Reason.OPERATOR_UNAVAILABLE
    assert found.verdict.health is Health.PROGRESSING
    assert Cluster(recording("13").snapshot(21, listened=21)).operator.state is State.WORKING


def test_an_operator_removed_long_ago_is_found_without_messages() -> None:
    snapshot = recording("02").snapshot(6)
    later = replace(snapshot, now=snapshot.now + 200)
    found = page(later, "hello")
    assert reason(found) == Reason.OPERATOR_UNAVAILABLE
    assert found.verdict.health is Health.HEALTHY
    gone = explain_host(later, host(later, SON), Beside())
    assert gone.verdict.health is Health.UNKNOWN


def aged(snapshot: Snapshot, *ages: float) -> Snapshot:
    """Return a snapshot whose Hosts, by name, have last heartbeats of these ages."""
    hosts = sorted(snapshot.hosts, key=lambda item: item.meta.name)
    seen = [replace(item, last_seen=snapshot.now - age) for item, age in zip(hosts, ages, strict=True)]
    return replace(snapshot, hosts=seen)


STOPPED = Reason.HEARTBEATS_STOPPED
SILENT = Reason.HEARTBEAT_MISSING


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        pytest.param((3, 14), (None, None), id="all send heartbeats"),
        pytest.param((36, 21), (None, None), id="all are overdue, one of them for longer"),
        pytest.param((37, 36), (STOPPED, STOPPED), id="all heartbeats stopped"),
        pytest.param((124, 110), (STOPPED, STOPPED), id="all heartbeats stopped two minutes ago"),
        pytest.param((36, 3), (SILENT, None), id="one host, while the other one sends"),
        pytest.param((90, 40), (SILENT, STOPPED), id="one host long before all others"),
    ],
)
def test_silence_of_all_hosts_is_an_outage_and_silence_of_one_is_its_own(
    ages: tuple[float, float], expected: tuple[Reason | None, Reason | None]
) -> None:
    snapshot = aged(recording("03").snapshot(20), *ages)
    pages = (explain_host(snapshot, host(snapshot, item.meta.name), Beside()) for item in snapshot.hosts)
    assert tuple(reason(found) for found in pages) == expected


def test_an_outage_does_not_change_what_is_ready_and_is_in_the_first_line() -> None:
    """Without a request of the operator since, conditions are those of before."""
    snapshot = recording("13").snapshot(12)
    later = replace(snapshot, now=snapshot.now + 40)
    assert Cluster(later).operator.state is State.HEARTBEATS_MISSING
    ready = deployment(later, "hello")
    found = explain_deployment(later, replace(ready, replicas=4), Beside())
    assert (reason(found), found.verdict.health) == (STOPPED, Health.UNKNOWN)


def test_the_only_host_is_no_evidence_against_itself() -> None:
    snapshot = recording("02").snapshot(6)
    found = explain_host(later := replace(snapshot, now=snapshot.now + 50), host(later, SON), Beside())
    assert (reason(found), found.verdict.health) == (STOPPED, Health.UNKNOWN)
    assert lacking(found.headline, SON) == []


def test_a_start_that_a_host_waits_for_is_no_outage() -> None:
    snapshot = recording("04b").snapshot(29, listened=21)
    assert Cluster(snapshot).operator.state is not State.HEARTBEATS_MISSING


def test_silence_is_the_operators_if_heartbeats_arrive_and_hosts_are_not_recorded() -> None:
    snapshot = recording("12").snapshot(66)
    beat = LastHeartbeat(HostHeartbeat("63b210df-738e-48b0-bbbd-e2be5d2693e8"), 1, snapshot.now - 6)
    there = replace(snapshot, messages=HostMessages(20.0, {"63b210df-738e-48b0-bbbd-e2be5d2693e8": beat}))
    assert Cluster(there).operator.state is State.CUT_OFF
    assert reason(page(there, "hello")) == Reason.NATS_UNREACHABLE


def test_a_nats_that_cannot_be_read_proves_nothing() -> None:
    snapshot = recording("10").snapshot(20)
    messages = HostMessages(seconds=0.0, error="connection-refused")
    found = page(replace(snapshot, messages=messages), "hello")
    assert reason(found) is None
    assert any("connection-refused" in line.text for line in found.lines)


def test_another_nats_than_that_of_the_operator_proves_nothing() -> None:
    snapshot = replace(recording("02").snapshot(6), messages=HostMessages(21.0))
    assert Cluster(snapshot).other_nats
    assert reason(page(snapshot, "hello")) is None
    assert explain_host(snapshot, host(snapshot, SON), Beside()).verdict.health is Health.HEALTHY


def test_too_short_a_time_and_dropped_messages_prove_nothing() -> None:
    recorded = recording("10").snapshot(25)
    [dead] = [item for item in recorded.hosts if item.meta.name != SON]
    for messages, missed in (
        (HostMessages(5.0), False),
        (HostMessages(21.0, dropped=1), False),
        (HostMessages(21.0), True),
    ):
        cluster = Cluster(replace(recorded, messages=messages))
        assert cluster.missed(dead) is missed


def test_hosts_of_one_name_in_two_namespaces_are_two_hosts() -> None:
    snapshot = recording("12").snapshot(96, listened=21)
    first = host(snapshot, SON)
    twin = replace(
        first, id="other-id", last_seen=snapshot.now - 200, meta=replace(first.meta, namespace="tenant", uid="other")
    )
    both = replace(snapshot, hosts=[twin, *snapshot.hosts])
    pages = [explain_host(both, item, Beside()) for item in both.hosts if item.meta.name == SON]
    assert {item.subject for item in pages} == {f"whost tenant/{SON}", f"whost wasmcloud-system/{SON}"}
    assert [item.cause is None for item in pages].count(True) == 1


def test_workloads_of_the_time_before_listening_are_no_unknown_workloads() -> None:
    snapshot = recording("12").snapshot(96, listened=21)
    name = "uppity-country-8876"
    assert reason(explain_host(snapshot, host(snapshot, name), Beside())) == Reason.UNKNOWN_WORKLOADS
    id_ = host(snapshot, name).id
    former = [replace(it, host_id=id_, meta=replace(it.meta, uid=f"{it.meta.uid}x")) for it in snapshot.workloads]
    calm = replace(snapshot, former=former)
    assert reason(explain_host(calm, host(calm, name), Beside())) is None
    hidden = replace(snapshot, unread={Part.WORKLOADS: "forbidden"}, workloads=(), former=())
    assert reason(explain_host(hidden, host(hidden, name), Beside())) is None


def test_numbers_of_a_host_come_from_its_heartbeat() -> None:
    for listened, named in ((0.0, "--v2-nats"), (21.0, "2.7.0")):
        snapshot = recording("03").snapshot(20, listened=listened)
        [line] = [
            item for item in explain_host(snapshot, host(snapshot, SON), Beside()).lines if item.about == "details"
        ]
        assert named in line.text


def test_a_reply_about_the_workload_that_was_replaced_is_the_cause_of_its_successor() -> None:
    snapshot = recording("04").snapshot(64, listened=65.0, replies=True)
    assert snapshot.messages is not None
    [workload] = workloads(snapshot, "no-tag")
    earlier = {id_: reply for id_, reply in (snapshot.messages.replies or {}).items() if id_ != workload.id}
    former = recording("04").snapshot(20).workloads
    kept = replace(snapshot, messages=replace(snapshot.messages, replies=earlier), former=former)
    assert reason(page(kept, "no-tag")) == Reason.IMAGE_NOT_FOUND


def test_a_deployment_of_no_replicas_is_suspended() -> None:
    spec = {"replicas": 0, "template": {"spec": {}}}
    conditions = [{"type": kind, "status": "True"} for kind in ("Artifact", "Sync", "Deploy", "Scale", "Ready")]
    view = view_deployment(
        {"metadata": {"namespace": "a", "name": "b"}, "spec": spec, "status": {"conditions": conditions}}
    )
    assert deployment_health(Cluster(Snapshot(now=0, deployments=[view])), view).health is Health.SUSPENDED


def test_a_bad_rollout_names_the_revision_that_serves_and_a_repaired_one_does_not() -> None:
    bad, repaired = (page(recording("14b").snapshot(at), "hello") for at in (40, 83))
    assert lacking(bad.headline, "hello-8b6c99bb9") == []
    assert bad.verdict.health is Health.DEGRADED
    assert repaired.cause is None


def test_the_counts_of_both_revisions_do_not_hide_the_new_one() -> None:
    snapshot = recording("14b").snapshot(40)
    view = deployment(snapshot, "hello")
    assert view.counts is not None
    assert view.counts.ready == view.replicas
    cause = deployment_cause(Cluster(snapshot), view)
    assert cause is not None
    assert cause.reason == Reason.PULL_FAILED


def test_an_operator_that_looks_at_nothing_is_named() -> None:
    snapshot = recording("02").snapshot(0.34)
    view = deployment(snapshot, "hello")
    fresh = explain_deployment(snapshot, view, Beside())
    assert (reason(fresh), fresh.verdict.health) == (Reason.WAITING, Health.PROGRESSING)
    later = aged(replace(snapshot, now=snapshot.now + 25), 3)
    assert reason(explain_deployment(later, view, Beside())) == Reason.NOT_OBSERVED


def test_the_health_of_each_kind_is_that_of_its_page() -> None:
    snapshot = recording("15b").snapshot(8)
    cluster = Cluster(snapshot)
    for item in snapshot.deployments:
        assert deployment_health(cluster, item) == explain_deployment(snapshot, item, Beside()).verdict
    for each in snapshot.hosts:
        assert host_health(cluster, each) == explain_host(snapshot, each, Beside()).verdict
    for workload in snapshot.workloads:
        assert workload_health(cluster, workload) == explain_workload(snapshot, workload, Beside()).verdict
    for artifact in snapshot.artifacts:
        assert artifact_health(cluster, artifact) == explain_artifact(snapshot, artifact, Beside()).verdict


def test_an_artifact_that_is_published_without_an_image_is_of_no_use() -> None:
    """The operator reads the condition and artifactUrl, and replaces the image of a component by it as it is."""
    snapshot = recording("15").snapshot(30)
    [artifact] = snapshot.artifacts
    found = explain_artifact(snapshot, replace(artifact, url=""), Beside())
    assert reason(found) == Reason.ARTIFACT_NOT_PUBLISHED
    assert "artifactUrl" in found.headline


def test_an_artifact_whose_image_does_not_exist_is_found_by_asking() -> None:
    snapshot = recording("15").snapshot(30)
    [artifact] = snapshot.artifacts
    images = {ImageKey("apps", artifact.url): ImageAnswer(ImageState.NOT_FOUND)}
    assert reason(explain_artifact(replace(snapshot, images=images), artifact, Beside())) == Reason.IMAGE_NOT_FOUND


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"environment": "team"}, Reason.NO_HOST_MATCHES),
        ({"environment": ""}, Reason.NO_HOST_MATCHES),
        ({"environment": "apps"}, Reason.NOT_OBSERVED),
        ({"conditions": {}}, Reason.NO_HOST_READY),
    ],
)
def test_the_rules_of_host_selection_are_evaluated_again(change: dict[str, Any], expected: Reason) -> None:
    snapshot = recording("07").snapshot(15)
    [workload] = workloads(snapshot, "picky")
    open_ = replace(workload, spec=replace(workload.spec, selector={}))
    hosts: list[HostView] = [replace(item, **change) for item in snapshot.hosts]
    found = explain_workload(replace(snapshot, workloads=[open_], hosts=hosts), open_, Beside())
    assert reason(found) == expected


def test_a_row_for_many_workloads_judges_the_operator_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = 0

    def counted(*given: Any) -> Judgement:
        nonlocal judged
        judged += 1
        return judge(*given)

    monkeypatch.setattr("trellis.v2.cluster.judge", counted)
    snapshot = recording("02").snapshot(6)
    [view], [workload], [owner] = snapshot.deployments, snapshot.workloads, snapshot.replica_sets
    many = 2000

    def named(number: int) -> ReplicaSetView:
        return replace(owner, meta=replace(owner.meta, name=f"r{number}", owner_name=f"d{number}", uid=f"r{number}"))

    world = replace(
        snapshot,
        deployments=[replace(view, current=f"r{n}", meta=replace(view.meta, name=f"d{n}")) for n in range(many)],
        replica_sets=[named(number) for number in range(many)],
        workloads=[
            replace(workload, meta=replace(workload.meta, name=f"w{n}", owner_name=f"r{n}")) for n in range(many)
        ],
    )
    cluster = Cluster(world)
    assert all(deployment_cause(cluster, item) is None for item in world.deployments)
    assert judged == 1
