"""Views of Nodes and Jobs, and the index of Jobs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.nodes_and_jobs import unix_seconds, view_job, view_node
from trellis.provisioning.views import FailedAttempt, JobState
from trellis_dev.testing.builders import a_job, a_node, verified_node

NODE = {
    "metadata": {
        "name": "n1",
        "uid": "u1",
        "resourceVersion": "5",
        "labels": {"kubernetes.io/os": "linux", "kwasm.sh/kwasm-provisioned": "n1", "trellis.dev/wasm": "ready"},
        "annotations": {"kwasm.sh/kwasm-node": "true", "trellis.dev/verified": "handler"},
    },
    "status": {
        "nodeInfo": {
            "architecture": "arm64",
            "operatingSystem": "linux",
            "containerRuntimeVersion": "containerd://2.0",
        },
        "runtimeHandlers": [{"name": ""}, {"name": "runc"}, {"name": "spin", "features": {}}],
    },
}


def test_a_node_as_the_api_server_returns_it() -> None:
    view = view_node(NODE)
    assert (view.name, view.uid, view.architecture, view.opt_in) == ("n1", "u1", "arm64", "true")
    assert view.handlers == {"", "runc", "spin"}
    assert (view.provisioned, view.wasm, view.verified) == ("n1", "ready", "handler")


def test_a_node_that_just_registered_has_no_labels_annotations_or_status() -> None:
    view = view_node({"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "5"}})
    assert view.opt_in is None
    assert not view.has_labels
    assert not view.bears_marks


def test_a_heartbeat_changes_no_view() -> None:
    later = {**NODE, "metadata": {**NODE["metadata"], "resourceVersion": "6"}}
    assert view_node(later) == view_node(NODE)


def test_equal_values_of_many_nodes_are_in_memory_once() -> None:
    item, other = (view_node(json.loads(json.dumps(NODE))) for _ in range(2))
    assert item.labels is other.labels
    assert item.label_values() == NODE["metadata"]["labels"]
    assert item.handlers is other.handlers
    assert item.operating_system is other.operating_system
    assert item.verified is other.verified


def job_manifest(*conditions: dict[str, str], **status: object) -> dict[str, object]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": "j",
            "uid": "ju",
            "resourceVersion": "9",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"trellis.dev/node-uid": "u1", "trellis.dev/digest": "d", "trellis.dev/attempt": "3"},
            "annotations": {"trellis.dev/node": "n1", "trellis.dev/handler": "spin"},
        },
        "status": {"conditions": list(conditions), **status},
    }


def test_annotations_are_decoded_once_and_nodes_share_what_they_decode_to() -> None:
    item, other = (replace(verified_node(a_node(name)), shims="slight=1 spin=2") for name in ("a", "b"))
    assert item.installed == {"slight": "1", "spin": "2"}
    assert item.installed is other.installed
    with pytest.raises(TypeError):
        item.installed["spin"] = "3"  # type: ignore[index]
    edited = replace(item, shims="=x spin", failed_attempt="//")
    assert (edited.installed, edited.failed) == ({}, None)
    assert (edited.shims, edited.failed_attempt) == ("=x spin", "//"), "what is replaced is named by what was there"


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ({"type": "SuccessCriteriaMet", "status": "True"}, JobState.ACTIVE),
        ({"type": "FailureTarget", "status": "True"}, JobState.ACTIVE),
        ({"type": "Complete", "status": "False"}, JobState.ACTIVE),
        ({"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}, JobState.COMPLETE),
        ({"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}, JobState.FAILED),
    ],
)
def test_a_job_ends_by_its_terminal_condition_alone(condition: dict[str, str], state: JobState) -> None:
    assert view_job(job_manifest(condition, succeeded=1, failed=1)).state is state


def test_a_job_that_waits_for_its_pods_to_end_states_the_reason() -> None:
    target = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    assert view_job(job_manifest(target)).failure_target == "DeadlineExceeded: too long"
    assert view_job(job_manifest(target, failed)).failure_target == ""
    assert view_job(job_manifest({**target, "status": "False"})).failure_target == ""


def test_a_job_as_the_api_server_returns_it() -> None:
    view = view_job(job_manifest({"type": "Failed", "status": "True", "reason": "R", "message": "m"}))
    assert (view.node, view.node_uid, view.attempt, view.handlers, view.condition) == ("n1", "u1", 3, {"spin"}, "R: m")
    assert view.created_at == unix_seconds("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(("runs_on", "uid"), [("n1", "u1"), ("n2", ""), (None, "")])
def test_a_job_whose_pods_run_elsewhere_is_no_job_of_the_node(runs_on: str | None, uid: str) -> None:
    job = job_manifest({"type": "Complete", "status": "True"})
    pod = {} if runs_on is None else {"nodeName": runs_on}
    assert view_job({**job, "spec": {"template": {"spec": pod}}}).node_uid == uid


@pytest.mark.parametrize("value", [None, "", "a", "a/b", "a/0/1", "a/1/x", "a/1/2/3"])
def test_an_edited_failure_record_is_ignored(value: str | None) -> None:
    assert FailedAttempt.decode(value) is None


@pytest.mark.parametrize("disruptive", [False, True])
def test_a_failure_record_is_read_back(disruptive: bool) -> None:
    attempt = FailedAttempt("d1", 4, 1700000000, disruptive)
    assert FailedAttempt.decode(attempt.encode()) == attempt


def test_the_index_holds_exactly_the_given_objects() -> None:
    index = JobIndex()
    first, former = a_job(a_node()), a_job(a_node(uid="uid-former"))
    index.change(None, first)
    index.change(None, former)
    assert set(index.of_name("node-1")) == {first, former}
    assert index.of_uid("uid-node-1") == (first,)
    index.change(first, None)
    assert index.of_uid("uid-node-1") == ()
    assert set(index.names()) == {"node-1"}
    index.change(former, None)
    assert index.by_uid() == {}
    assert set(index.names()) == set()
