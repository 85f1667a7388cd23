"""A forbidden read is named, and nothing is concluded from it."""

from __future__ import annotations

from typing import Any

import pytest

from support.cluster.not_served import define, refuse
from support.suite.naming import lacking
from trellis import names
from trellis.kube.errors import Unavailable
from trellis.kube.resources import HOST_CONFIGS, NAMESPACES, NODES, PODS, SHIMS
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED, Reason
from trellis.read_model.explain.application import AppSnapshot, explain_application
from trellis.read_model.explain.job import refused_by_node, unlabelled_by_node
from trellis.read_model.explain.page import READ_INCOMPLETE
from trellis.read_model.health import Health
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.tables.nodes import NodeState
from trellis.telemetry import Metrics, setup
from trellis_cli.apps.row import causes_of
from trellis_cli.common.rollout_state import read_rollout
from trellis_cli.explain.grant import GrantSnapshot, explain_grant
from trellis_cli.nodes import footer
from trellis_dev.fakes.fake import FakeKube, status_reply
from trellis_dev.testing.builders import a_node

Manifest = dict[str, Any]
FORBIDDEN = 'pods is forbidden: User "a" cannot list resource "pods" in API group "" at the cluster scope'
APP: Manifest = {
    "metadata": {"namespace": "team", "name": "web", "generation": 1},
    "status": {"observedGeneration": 1, "lattice": "east", "conditions": [{"type": "Synced", "status": "True"}]},
}


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube(telemetry=setup("test", metrics=Metrics()))
    made.put(NAMESPACES, {"metadata": {"name": "team"}})
    made.put(PODS, {"metadata": {"namespace": "team", "name": "p"}})
    return made


def refuse_all(kube: FakeKube, times: int = 1) -> None:
    """Let lists of pods in all namespaces be refused."""
    kube.answer_next(
        times,
        lambda _: status_reply(403, "Forbidden", FORBIDDEN),
        when=lambda request: request.path.startswith("/api/v1/pods"),
    )


async def test_a_right_that_is_lacking_is_a_note_once(kube: FakeKube) -> None:
    refuse_all(kube, 2)
    reading = Reading(kube, "trellis-system")
    assert await reading.list(PODS) == await reading.list(PODS) == []
    [note] = reading.notes
    assert lacking(note.text, "list pods") == []
    assert note.trouble is False


async def test_a_forbidden_cluster_wide_list_is_replaced_by_that_of_the_namespace(kube: FakeKube) -> None:
    refuse_all(kube)
    reading = Reading(kube, "trellis-system")
    assert [item["metadata"]["name"] for item in await reading.wide(PODS, "team")] == ["p"]
    assert len(reading.notes) == 1
    refuse_all(kube)
    assert await reading.wide(PODS, None) == []


async def test_a_kind_that_is_not_defined_has_no_objects_and_an_outage_is_the_callers(kube: FakeKube) -> None:
    reading = Reading(kube, "trellis-system")
    kube.answer_next(1, lambda _: status_reply(404, "NotFound", "page not found"))
    assert await reading.list(HOST_CONFIGS) == []
    assert reading.knows(HOST_CONFIGS)
    await reading.list(PODS)
    assert reading.unserved == {HOST_CONFIGS}
    kube.fail_next(99)
    with pytest.raises(Unavailable):
        await reading.list(PODS)
    assert reading.notes == []


async def test_a_kind_that_is_not_served_is_a_note_and_not_known(kube: FakeKube) -> None:
    define(kube, served=False)
    refuse(kube, HOST_CONFIGS)
    reading = Reading(kube, "trellis-system")
    assert await reading.list(HOST_CONFIGS) == []
    assert not reading.knows(HOST_CONFIGS)
    assert reading.knows(PODS)
    [note] = reading.notes
    assert "wasmcloudhostconfigs.k8s.wasmcloud.dev" in note.text


async def test_the_opt_in_of_a_node_is_unknown_if_shims_may_not_be_read(kube: FakeKube) -> None:
    kube.put(NODES, {"metadata": {"name": "a"}})
    kube.put(NODES, {"metadata": {"name": "b", "annotations": {names.ANNOTATION_OPT_IN: "false"}}})
    kube.put(NODES, {"metadata": {"name": "c", "annotations": {names.ANNOTATION_OPT_IN: "true"}}})
    rows = (await read_rollout(Reading(kube, "trellis-system"), "installers")).rows
    assert [row.opt_in for row in rows] == ["false", "false", "true"]
    kube.answer_next(99, lambda _: status_reply(403, "Forbidden", FORBIDDEN), when=lambda it: it.path == SHIMS.path())
    rows = (await read_rollout(Reading(kube, "trellis-system"), "installers")).rows
    assert [row.opt_in for row in rows] == ["unknown", "false", "true"]
    assert (rows[0].verdict.health, rows[0].verdict.reason) == (Health.UNKNOWN, READ_INCOMPLETE)
    assert NodeState.UNKNOWN.value.lower() in footer(rows[:1], [])


def test_groups_that_may_not_be_read_are_no_cause() -> None:
    assert list(causes_of([APP], [])) == ["team/web"]
    assert causes_of([APP], None) == {}
    page = explain_application(AppSnapshot(APP, None))
    assert page.cause is None
    grant = {"metadata": {"namespace": "v", "name": "g"}, "spec": {"from": [{"namespace": "t"}], "serviceAccounts": []}}
    assert explain_grant(GrantSnapshot(grant, None)).cause is None
    assert explain_grant(GrantSnapshot(grant, [])).cause is not None


def test_a_job_that_was_refused_is_no_trouble_once_it_is_there() -> None:
    about = {"uid": "uid-n", "name": "n"}
    event = {
        "type": "Warning",
        "reason": Reason.JOB_REFUSED.value,
        "message": "exceeded quota: q",
        "involvedObject": about,
    }
    assert list(refused_by_node([event], [], [], "installers")) == ["n"]
    job = {"metadata": {"name": "j", "labels": {names.LABEL_NODE_UID: "uid-n"}}}
    assert refused_by_node([event], [job], [], "installers") == {}


@pytest.mark.parametrize(("digest", "shown"), [("", True), ("d1", False)], ids=["nothing since", "provisioned since"])
def test_a_job_that_was_refused_before_the_last_outcome_of_its_node_is_no_trouble(digest: str, shown: bool) -> None:
    """The Event stays for an hour, and the Job that was accepted then may be deleted by now."""
    node = a_node(digest=digest or None)
    event = {
        "metadata": {"annotations": {names.ANNOTATION_DIGEST: "", names.ANNOTATION_FAILED_ATTEMPT: ""}},
        "type": "Warning",
        "reason": Reason.JOB_REFUSED.value,
        "message": "exceeded quota: q",
        "involvedObject": {"uid": node.uid, "name": node.name},
    }
    assert bool(refused_by_node([event], [], [node], "installers")) is shown


def test_a_node_that_is_refused_its_labels_is_named_while_its_job_is_done() -> None:
    about = {"uid": "uid-n", "name": "n"}
    event = {"type": "Warning", "reason": NODE_UPDATE_REFUSED, "message": "no team label", "involvedObject": about}
    metadata = {"name": "j", "namespace": "i", "uid": "uid-j", "resourceVersion": "1"}
    metadata |= {"labels": {names.LABEL_NODE_UID: "uid-n"}, "annotations": {names.ANNOTATION_NODE: "n"}}
    done = {"metadata": metadata, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    [line] = unlabelled_by_node([event], [done]).values()
    assert "no team label" in line.text
    assert unlabelled_by_node([event], []) == {}
    assert unlabelled_by_node([event], [{"metadata": metadata}]) == {}
