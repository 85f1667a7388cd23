"""First lines and steps that are precise: subjects, ages, hints that are still of use, one wording for one state."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.manifests import (
    ALL,
    NOT_FOUND,
    NOW,
    Manifest,
    condition,
    make_deployment,
    make_host,
    make_replica_set,
    make_service,
    make_snapshot,
    make_workload,
    steps,
)
from support.v2.recordings import SITUATIONS, deployment, recording
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.components import ComponentTypes
from trellis.v2.explain.artifact import explain_artifact
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.service import explain_routed_service
from trellis.v2.explain.workload import explain_workload
from trellis.v2.host_messages import HostMessages, LastHeartbeat
from trellis.v2.images import ImageAnswer, ImageKey, ImageState
from trellis.v2.interfaces import Interface
from trellis.v2.messages import HostHeartbeat, WorkloadState, WorkloadStatus
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot

IMAGE = ImageKey("apps", "registry.test/app:1")
GIZMO = Interface("acme", "widgets", "gizmo", "1.0.0")


def host_page(snapshot: Snapshot, number: int = 0) -> Explanation:
    return explain_host(snapshot, snapshot.hosts[number], Beside())


def workload_page(snapshot: Snapshot) -> Explanation:
    return explain_workload(snapshot, snapshot.workloads[0], Beside())


def deployment_page(snapshot: Snapshot) -> Explanation:
    return explain_deployment(snapshot, snapshot.deployments[0], Beside())


def line(page: Explanation, about: str) -> Any:
    [found] = [line for line in page.lines if line.about == about]
    return found


def failed_pull() -> list[Manifest]:
    return [*steps(*ALL[:3]), condition("Sync", "False", NOT_FOUND)]


def test_a_deletion_that_is_overdue_is_not_announced() -> None:
    for age, overdue in ((50.0, False), (360.0, True)):
        page = host_page(make_snapshot([make_host("h1", seen=age), make_host("h2", seen=3)]))
        assert page.cause is not None
        assert page.cause.reason == Reason.HEARTBEAT_MISSING
        assert ("within" in page.cause.do) is not overdue


def test_an_old_heartbeat_is_not_shown_as_good() -> None:
    assert line(host_page(make_snapshot([make_host(seen=5)])), "heartbeat").ok is True
    assert line(host_page(make_snapshot([make_host(seen=240)])), "heartbeat").ok is None


def test_a_host_without_an_address_and_an_id_is_named_as_such() -> None:
    page = host_page(make_snapshot([make_host(hostname="", hostId="")]))
    assert page.cause is not None
    assert page.cause.reason == Reason.ADDRESS_NOT_ROUTABLE
    assert "none" not in page.cause.text


def test_sources_that_were_used_are_not_recommended() -> None:
    snapshot = make_snapshot([make_host()], [make_workload(conditions=failed_pull())])
    page = workload_page(snapshot)
    assert lacking(page.headline, "--v2-registry", "--v2-replies") == []
    asked = replace(snapshot, images={IMAGE: ImageAnswer(ImageState.FOUND)})
    assert "--v2-registry" not in workload_page(asked).headline
    beat = LastHeartbeat(HostHeartbeat("id-h1"), 1, NOW - 5)
    heard = replace(asked, messages=HostMessages(65.0, {"id-h1": beat}, {}))
    assert "--v2-" not in workload_page(heard).headline
    without = replace(asked, messages=HostMessages(65.0, {"id-h1": beat}, None))
    assert "--v2-replies" in workload_page(without).headline
    assert "--v2-nats" not in line(host_page(heard), "details").text


def test_a_nats_that_the_user_named_and_that_cannot_be_read_is_a_warning() -> None:
    snapshot = make_snapshot([make_host()], [make_workload()])
    failed = HostMessages(error="tls://n:4222: not-this-ca", resolution="use another-ca")
    for page_of in (workload_page, deployment_page, host_page):
        page = page_of(replace(snapshot, messages=failed))
        assert page.cause is not None
        assert page.cause.reason == Reason.SOURCE_NOT_READ
        assert page.verdict.health is Health.HEALTHY
        assert lacking(page.headline, "tls://n:4222", "not-this-ca", "another-ca") == []
        without_user = page_of(replace(snapshot, messages=replace(failed, resolution="")))
        assert without_user.cause is None
        assert "not-this-ca" in line(without_user, "nats").text
    silent = replace(make_snapshot([make_host(seen=9000)]), messages=failed)
    assert host_page(silent).verdict.health is Health.UNKNOWN


def test_a_registry_whose_certificate_is_not_trusted_is_a_warning() -> None:
    images = {IMAGE: ImageAnswer(ImageState.NOT_TRUSTED, "not-this-ca")}
    snapshot = make_snapshot([make_host()], [make_workload()], images=images)
    for page in (workload_page(snapshot), deployment_page(snapshot)):
        assert page.cause is not None
        assert page.cause.reason == Reason.SOURCE_NOT_READ
        assert page.verdict.health is Health.HEALTHY
        assert lacking(page.headline, "registry.test/app:1", "not-this-ca") == []


@pytest.mark.parametrize("state", [ImageState.UNKNOWN, ImageState.NOT_FOUND, ImageState.DENIED])
def test_the_answer_of_a_registry_is_shown_on_the_page_of_a_workload_that_runs(state: ImageState) -> None:
    snapshot = make_snapshot([make_host()], [make_workload()], images={IMAGE: ImageAnswer(state, "why-not")})
    for page in (workload_page(snapshot), deployment_page(snapshot)):
        assert (page.cause, page.verdict.health) == (None, Health.HEALTHY)
        assert lacking(line(page, "registry").text, "registry.test/app:1", "why-not") == []
    found = make_snapshot([make_host()], [make_workload()], images={IMAGE: ImageAnswer(ImageState.FOUND)})
    assert "registry.test/app:1" in line(workload_page(found), "registry").text


def test_failed_workloads_on_the_page_of_their_host_are_no_failed_check_of_the_host() -> None:
    page = host_page(make_snapshot([make_host()], [make_workload(conditions=failed_pull())]))
    assert page.cause is None
    assert [line for line in page.document()["lines"] if line["ok"] is False] == []  # type: ignore[attr-defined]


def test_an_operator_or_host_that_does_not_work_is_in_the_first_line_of_a_failed_pull() -> None:
    workload = make_workload(conditions=failed_pull())
    gone = workload_page(make_snapshot([make_host(seen=9000)], [workload]))
    assert gone.cause is not None
    assert gone.cause.reason == Reason.PULL_FAILED
    assert lacking(gone.headline, "runtime-operator", "outdated") == []
    silent = workload_page(make_snapshot([make_host("h1", seen=60), make_host("h2", seen=3)], [workload]))
    assert silent.cause is not None
    assert silent.cause.reason == Reason.PULL_FAILED
    assert lacking(silent.headline, "h1", "heartbeat") == []


def test_workloads_that_serve_on_a_host_that_pulls_for_another_one_are_healthy() -> None:
    pulling = make_workload("w2", steps("Config", "HostSelection", age=30))
    pulling["metadata"]["ownerReferences"] = []
    snapshot = make_snapshot([make_host(seen=40)], [make_workload(), pulling], make_replica_set(), make_deployment())
    page = deployment_page(snapshot)
    assert (page.cause, page.verdict.health) == (None, Health.HEALTHY)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("[OCI API error: denied]", Reason.REGISTRY_DENIED),
        ("tcp connect error: Connection refused", Reason.REGISTRY_UNREACHABLE),
    ],
)
@pytest.mark.parametrize(
    ("image", "registry"),
    [("app:1", "docker.io"), ("team/app:1", "docker.io"), ("[fd00::5]:5000/app:1", "[fd00::5]:5000")],
)
def test_the_registry_of_an_image_is_named_as_hosts_read_it(
    image: str, registry: str, error: str, expected: Reason
) -> None:
    spec = {"components": [{"name": "web", "image": image}]}
    message = f"failed to pull image for component 'web': failed to pull component from {image}: {error}"
    reply = WorkloadStatus("uid-w1", WorkloadState.ERROR, message)
    messages = HostMessages(65.0, replies={"uid-w1": reply})
    page = workload_page(
        make_snapshot([make_host()], [make_workload(conditions=failed_pull(), spec=spec)], messages=messages)
    )
    assert page.cause is not None
    assert page.cause.reason == expected
    assert f"registry {registry} " in page.cause.text


def test_no_replicas_have_one_wording() -> None:
    zero = make_deployment(0, kubernetes={"service": {"name": "web"}})
    snapshot = make_snapshot(deployment=zero, services=[make_service()])
    pages = (deployment_page(snapshot), explain_routed_service(snapshot, snapshot.services[0], Beside()))
    for page in pages:
        assert (page.cause, page.verdict.health) == (None, Health.SUSPENDED)
        assert page.headline.endswith("is suspended: spec.replicas is 0")


def test_an_interface_that_a_component_imports_is_not_to_be_removed() -> None:
    interface = {"namespace": "acme", "package": "widgets", "interfaces": ["gizmo"], "version": "1.0.0"}
    spec = {"components": [{"name": "web", "image": IMAGE.image}], "hostInterfaces": [interface]}
    broken = [*steps(*ALL[:3]), condition("Sync", "False", "workload is not operational: WORKLOAD_STATE_ERROR")]
    beat = LastHeartbeat(HostHeartbeat("id-h1"), 1, NOW - 5)
    snapshot = make_snapshot(
        [make_host()], [make_workload(conditions=broken, spec=spec)], messages=HostMessages(21.0, {"id-h1": beat})
    )
    for imports, removable in ((frozenset({GIZMO}), False), (frozenset[Interface](), True)):
        answer = ImageAnswer(ImageState.FOUND, types=ComponentTypes(imports, frozenset()))
        page = workload_page(replace(snapshot, images={IMAGE: answer}))
        assert page.cause is not None
        assert page.cause.reason == Reason.PLUGIN_MISSING
        assert ("remove" in page.cause.do) is removable


@pytest.mark.parametrize(("situation", "at", "name"), [("04", 64, "no-tag"), ("14b", 40, "hello")])
def test_a_failed_pull_without_its_cause_is_a_short_first_line(situation: str, at: float, name: str) -> None:
    snapshot = recording(situation).snapshot(at)
    page = explain_deployment(snapshot, deployment(snapshot, name), Beside())
    assert page.cause is not None
    assert page.cause.reason == Reason.PULL_FAILED
    assert len(page.cause.text) < 120


def test_numbers_have_their_singular() -> None:
    beat = LastHeartbeat(HostHeartbeat("id-h1"), 1, NOW - 5)
    one = make_snapshot([make_host()], [make_workload()], messages=HostMessages(21.0, {"id-h1": beat}))
    for page in (host_page(one), workload_page(one), deployment_page(one)):
        assert [line.text for line in page.lines if "1 hosts" in line.text or "1 Workloads" in line.text] == []


def test_no_two_steps_about_the_operator_are_the_same_thing() -> None:
    snapshot = make_snapshot([make_host()], [make_workload(conditions=[], age=3000)])
    assert [line.about for line in workload_page(snapshot).lines].count("operator") == 1


def own_colons(text: str) -> int:
    """Return the most colons in a clause, without messages in parentheses, commands, and names."""
    text = re.sub(r"`[^`]*`", "", text)
    while (without := re.sub(r"\([^()]*\)", "", text)) != text:
        text = without
    return max(clause.count(": ") for clause in re.split(r"; |\. ", text))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_cause_is_a_chain_of_colons(situation: str) -> None:
    found = recording(situation)
    for at in {*found.times[:: max(1, len(found.times) // 8)], found.end}:
        for listened in (0.0, 65.0):
            snapshot = found.snapshot(at, listened=listened, replies=bool(listened))
            pages = [explain_deployment(snapshot, item, Beside()) for item in snapshot.deployments]
            pages += [explain_workload(snapshot, item, Beside()) for item in snapshot.workloads]
            pages += [explain_host(snapshot, item, Beside()) for item in snapshot.hosts]
            pages += [explain_artifact(snapshot, item, Beside()) for item in snapshot.artifacts]
            for page in pages:
                assert own_colons(page.headline) <= 2, page.headline
                assert [line.text for line in page.lines if line.trouble and own_colons(line.text) > 1] == []


def test_messages_of_other_programs_are_in_parentheses_and_whole() -> None:
    message = 'admission webhook "deny.test" denied the request: a: b'
    page = workload_page(
        make_snapshot([make_host()], [make_workload(conditions=[condition("Config", "False", message)])])
    )
    assert page.cause is not None
    assert page.cause.text.endswith(f"({message})")
