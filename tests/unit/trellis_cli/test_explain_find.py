"""The message about an object that does not exist: other places to look, and the end of its kind's page."""

from __future__ import annotations

from typing import Any

import pytest

from support.suite.naming import lacking
from trellis.kube.resources import HOST_CONFIGS, NAMESPACES, NODES, WASM_CONTROLLERS
from trellis.read_model.errors import AnswerError
from trellis.read_model.explain.application import SUBJECT as APPLICATION
from trellis.read_model.explain.controller import SUBJECT as CONTROLLER
from trellis.read_model.explain.hosts import SUBJECT as GROUP
from trellis.read_model.explain.node import SUBJECT as NODE
from trellis.read_model.explain.page import Leader, Line, Rank
from trellis.read_model.explain.service import SUBJECT as SERVICE
from trellis.read_model.explain.shim import SUBJECT as SHIM
from trellis.read_model.explain.subject import Absence, Beside, Subject
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_v2 import HOST_GROUP
from trellis.read_model.reading.explained_v2 import SUBJECTS as V2_SUBJECTS
from trellis.read_model.reading.find import ObjectNotFoundError, find
from trellis.read_model.wasm_pods.explain.owner import SUBJECTS as OWNERS
from trellis.read_model.wasm_pods.explain.pod import SUBJECT as POD
from trellis.telemetry import Metrics, setup
from trellis_cli.explain.command import KINDS
from trellis_cli.explain.grant import SUBJECT as GRANT
from trellis_dev.fakes.fake import FakeKube, status_reply

SUBJECTS = (APPLICATION, CONTROLLER, GRANT, GROUP, NODE, SERVICE, SHIM)
EVENT = {"type": "Warning", "reason": "Odd", "message": "it was", "involvedObject": {"uid": "u"}}
ABSENCES: dict[str, tuple[str | None, Absence, list[str], str, Rank]] = {
    "nothing like it": (None, Absence(), ['Thing "x"'], "`kubectl get things`", Rank.SYMPTOM),
    "its namespace is there": ("a", Absence(), ['Thing "x"', "namespace a"], "`kubectl get things`", Rank.SYMPTOM),
    "no such namespace": (
        "a",
        Absence(namespace_missing=True),
        ['namespace "a"'],
        "`kubectl get namespaces`",
        Rank.CAUSE,
    ),
    "one elsewhere": (
        "a",
        Absence(elsewhere=["b", "c"], alike=["a/y"]),
        ['Thing "x"', "namespace a", "b, c"],
        "`trellis explain thing/x -n b`",
        Rank.CAUSE,
    ),
    "one alike": (
        None,
        Absence(alike=["a/y", "a/z", "b/y", "b/z"]),
        ['Thing "x"', "a/y, a/z, b/y"],
        "`trellis explain thing/y -n a`",
        Rank.SYMPTOM,
    ),
    "one alike that has no namespace": (
        None,
        Absence(alike=["y"]),
        ['Thing "x"', "y"],
        "`trellis explain thing/y`",
        Rank.SYMPTOM,
    ),
}


@pytest.mark.parametrize(("namespace", "absence", "names", "do", "rank"), ABSENCES.values(), ids=ABSENCES)
def test_a_missing_object_may_be_in_another_namespace(
    namespace: str | None, absence: Absence, names: list[str], do: str, rank: Rank
) -> None:
    page = Subject("Thing", "thing", "kubectl get things", "well").absent("x", namespace, absence)
    assert page.cause is not None
    assert lacking(page.cause.text, *names) == []
    assert do in page.cause.do
    assert page.cause.rank is rank
    assert lacking(page.headline, page.cause.text) == []


def test_the_explanation_of_a_missing_object_is_the_answer_unless_it_exists_elsewhere() -> None:
    subject, line = Subject("Thing", "thing", "things"), Line("event", "it may not be", False, rank=Rank.CAUSE)
    assert "it may not be" in subject.absent("x", "a", Absence(alike=["a/y"]), line).headline
    assert "namespace b" in subject.absent("x", "a", Absence(elsewhere=["b"]), line).headline


def test_a_page_ends_with_the_leader_the_events_and_the_missing_permissions() -> None:
    beside = Beside(
        [Leader("s", "pod", "")], [EVENT, EVENT | {"involvedObject": {"uid": "v"}}], [Line("rights", "none")]
    )
    found = {"metadata": {"name": "x", "namespace": "a", "uid": "u"}}
    page = Subject("Thing", "thing", "things").page(found, [Line("thing", "well", ok=True)], beside)
    assert (page.cause, page.subject) == (None, "thing a/x")
    well, leader, event, permissions = (line.text for line in page.lines)
    assert (well, event, permissions) == ("well", f"Odd: {EVENT['message']}", "none")
    assert lacking(leader, "pod") == []


def test_a_subject_is_named_as_the_command_line_names_it() -> None:
    subjects = [*SUBJECTS, *(subject for _, subject in V2_SUBJECTS.values()), POD, *OWNERS.values()]
    assert {subject.short for subject in subjects} | {HOST_GROUP, "deadletter"} == set(KINDS)


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube(telemetry=setup("test", metrics=Metrics()))
    for name in ("team", "vault"):
        made.put(NAMESPACES, {"metadata": {"name": name}})
    for name in ("node-1", "node-2"):
        made.put(NODES, {"metadata": {"name": name}})
    for namespace, name in (("team", "shop"), ("team", "both"), ("vault", "both")):
        made.put(HOST_CONFIGS, {"metadata": {"namespace": namespace, "name": name}})
    return made


async def error_of(kube: FakeKube, name: str, namespace: str | None) -> str:
    with pytest.raises(ObjectNotFoundError) as raised:
        await find(Reading(kube, "trellis-system"), HOST_CONFIGS, GROUP, name, namespace)
    assert raised.value.page.cause is not None
    return raised.value.page.cause.text


async def test_an_object_is_found_in_its_namespace_or_in_any(kube: FakeKube) -> None:
    reading = Reading(kube, "trellis-system")
    for namespace in ("team", None):
        found: Any = await find(reading, HOST_CONFIGS, GROUP, "shop", namespace)
        assert found["metadata"]["namespace"] == "team"
    assert (await find(reading, NODES, NODE, "node-1"))["metadata"]["name"] == "node-1"
    with pytest.raises(AnswerError, match=r"\bteam, vault\b.*--namespace\b"):
        await find(reading, HOST_CONFIGS, GROUP, "both", None)


async def test_of_one_that_is_not_there_the_nearest_are_named(kube: FakeKube) -> None:
    elsewhere = await error_of(kube, "shop", "vault")
    assert lacking(elsewhere, 'WasmCloudHostConfig "shop"', "namespace vault", "namespace team") == []
    assert lacking(await error_of(kube, "shup", None), 'WasmCloudHostConfig "shup"', "team/shop") == []
    nowhere = await error_of(kube, "shop", "nowhere")
    assert lacking(nowhere, 'namespace "nowhere"') == []
    assert "WasmCloudHostConfig" not in nowhere
    with pytest.raises(ObjectNotFoundError) as raised:
        await find(Reading(kube, "trellis-system"), NODES, NODE, "node-3")
    assert lacking(raised.value, 'Node "node-3"', "node-1, node-2") == []


async def test_an_undefined_kind_is_not_a_missing_object(kube: FakeKube) -> None:
    kube.answer_next(9, lambda _: status_reply(404, "NotFound", "the server could not find the requested resource"))
    with pytest.raises(AnswerError, match=r'"wasmcontrollers".*`trellis crds apply wasmcontrollers`'):
        await find(Reading(kube, "trellis-system"), WASM_CONTROLLERS, CONTROLLER, "x", None)


async def test_with_permission_for_one_namespace_others_are_not_mentioned(kube: FakeKube) -> None:
    reason = 'is forbidden: User "a" cannot list resource "wasmcloudhostconfigs" in API group "k8s.wasmcloud.dev"'
    kube.answer_next(
        9,
        lambda _: status_reply(403, "Forbidden", reason),
        when=lambda request: request.path == HOST_CONFIGS.path() or request.path == NAMESPACES.path(None, "vault"),
    )
    message = await error_of(kube, "shop", "vault")
    assert lacking(message, 'WasmCloudHostConfig "shop"', "namespace vault") == []
    assert "team" not in message
    with pytest.raises(AnswerError, match="--namespace"):
        await find(Reading(kube, "trellis-system"), HOST_CONFIGS, GROUP, "shop", None)
