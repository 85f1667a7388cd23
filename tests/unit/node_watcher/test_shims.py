"""Startup taints that are removed after verification, and late verification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_watcher.domain.actions import Action, PatchNode, PublishedState, Reason, Snapshot
from node_watcher.domain.decide import decide
from node_watcher.domain.shims import verification_by_now
from support.suite.naming import lacking
from trellis import names
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import ShimView, Taint
from trellis.provisioning.targets import wanted_on
from trellis.provisioning.views import (
    KWASM,
    JobState,
    JobView,
    NodeTaint,
    NodeView,
    Target,
    VerifiedBy,
    encode_digests,
)
from trellis_dev.testing.builders import DIGEST, a_job, a_node, a_shim, opted_in, verified_node

TAINT = NodeTaint("example.com/starting", "NoSchedule", "true")
OTHERS = (
    NodeTaint("example.com/starting", "NoExecute", "true", "2026-01-31T08:00:00Z"),
    NodeTaint("node.kubernetes.io/unschedulable", "NoSchedule"),
)
REQUESTED = Taint("example.com/starting", None, "NoSchedule")
SPIN = a_shim(startup_taint=REQUESTED)
SLIGHT = a_shim("slight", startup_taint=REQUESTED)
TAINTED = a_node(taints=(OTHERS[0], TAINT, OTHERS[1]))
REST = [taint.manifest() for taint in OTHERS]


def having(node: NodeView, *shims: str, verified: str = "handler") -> NodeView:
    digests = dict.fromkeys(shims, DIGEST)
    digest = Target(tuple(sorted(digests.items()))).digest
    labels = tuple((names.shim_label(shim), names.SHIM_PROVISIONED) for shim in shims)
    return replace(verified_node(node, digest, verified), shims=encode_digests(digests), labels=labels)


def deciding(node: NodeView, *shims: ShimView, job: JobView | None = None) -> list[Action]:
    wanted = wanted_on(node, shims, auto_provision=False)
    of_node = tuple(shim for shim in shims if shim.name in wanted)
    published = PublishedState(node.uid, opted_in=True, ready=node.marked_digest)
    handlers = {shim.name: shim.handler for shim in shims if shim.name in node.installed}
    return decide(Snapshot(node.name, node, job, published, wanted, handlers, of_node))


def patch(actions: list[Action]) -> PatchNode:
    [found] = [action for action in actions if isinstance(action, PatchNode)]
    return found


def taints_left(actions: list[Action]) -> Any:
    """Return the taints that the one patch leaves, None if it says nothing of them."""
    ops = [op for op in patch(actions).ops if op["path"] == "/spec/taints"]
    assert [op["op"] for op in ops] in ([], ["test", "replace"], ["test", "remove"])
    return ops[1].get("value", []) if ops else None


def test_labels_and_taint_go_in_one_patch_that_tests_the_whole_list() -> None:
    job = a_job(TAINTED, JobState.COMPLETE, installs=encode_digests({"spin": DIGEST}), handlers=frozenset({"spin"}))
    shown = replace(TAINTED, handlers=frozenset({"runc", "spin"}))
    actions = deciding(shown, SPIN, job=job)
    assert patch(actions).reason is Reason.PROVISION_SUCCEEDED
    assert lacking(patch(actions).message, "example.com/starting:NoSchedule") == []
    assert taints_left(actions) == REST
    tests = {op["path"]: op["value"] for op in patch(actions).ops if op["op"] == "test"}
    assert tests["/spec/taints"] == [REST[0], TAINT.manifest(), REST[1]]
    assert any(op["path"].endswith("/trellis.dev~1wasm") for op in patch(actions).ops)


def test_before_the_verification_the_taint_stays() -> None:
    job = a_job(TAINTED, JobState.COMPLETE, installs=encode_digests({"spin": DIGEST}), handlers=frozenset({"spin"}))
    assert deciding(TAINTED, SPIN, job=job) == []


def test_a_taint_added_later_is_removed_from_a_verified_node_in_a_single_write() -> None:
    actions = deciding(having(TAINTED, "spin"), SPIN)
    assert patch(actions).reason is Reason.STARTUP_TAINT_REMOVED
    assert [op["path"] for op in patch(actions).ops if op["op"] != "test"] == ["/spec/taints"]
    assert taints_left(actions) == REST


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(having(a_node(), "spin"), id="it is not there, or was taken away already"),
        pytest.param(having(replace(TAINTED, taints=OTHERS), "spin"), id="of another effect"),
        pytest.param(having(TAINTED, "spin", verified="job"), id="only a Job says so"),
    ],
)
def test_nothing_is_written_where_the_taint_is(node: NodeView) -> None:
    node = replace(node, wasm=None) if node.verified == "job" else node
    assert deciding(node, SPIN) == []


@pytest.mark.parametrize(
    ("value", "found", "goes"),
    [("true", "true", True), ("other", "true", False), (None, "true", True), ("", None, True), ("true", None, False)],
)
def test_a_value_that_is_given_counts(value: str | None, found: str | None, goes: bool) -> None:
    node = having(a_node(taints=(replace(TAINT, value=found),)), "spin")
    actions = deciding(node, replace(SPIN, startup_taint=replace(REQUESTED, value=value)))
    assert (actions != []) is goes
    if goes:
        assert taints_left(actions) == []


def test_every_shim_of_the_node_that_names_the_taint_has_to_be_verified() -> None:
    assert deciding(having(TAINTED, "spin"), SPIN, SLIGHT) == []
    assert taints_left(deciding(having(TAINTED, "slight", "spin"), SPIN, SLIGHT)) == REST
    elsewhere = replace(SLIGHT, selector=(("pool", "other"),))
    assert taints_left(deciding(having(TAINTED, "spin"), SPIN, elsewhere)) == REST


def test_a_taint_is_read_as_the_api_server_has_it() -> None:
    raw = [
        {"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-31T08:00:00Z"},
        {"key": "b", "effect": "NoSchedule"},
    ]
    node = view_node({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {"taints": raw}})
    assert [taint.manifest() for taint in node.taints] == raw


# --- late verification ---

LEGACY = replace(opted_in(having(a_node(), KWASM, verified="job")), shims=None, labels=(), wasm=None)
LATE = replace(having(a_node(), "slight", "spin", verified="job"), wasm=None)


def verified(actions: list[Action]) -> str | None:
    path = f"/metadata/annotations/{names.ANNOTATION_VERIFIED.replace('/', '~1')}"
    return next((op["value"] for op in patch(actions).ops if op["path"] == path), None)


def test_an_adopted_node_is_verified_once_the_kubelet_lists_all_handlers() -> None:
    shown = replace(LATE, handlers=frozenset({"runc", "spin", "slight"}))
    actions = deciding(shown, SPIN, SLIGHT)
    assert patch(actions).reason is Reason.PROVISION_SUCCEEDED
    assert verified(actions) == "handler"
    assert any(op["path"].endswith("/trellis.dev~1wasm") for op in patch(actions).ops)


@pytest.mark.parametrize(
    ("node", "shims"),
    [
        pytest.param(LATE, (SPIN, SLIGHT), id="the kubelet lists none"),
        pytest.param(replace(LEGACY, handlers=frozenset({"spin"})), (), id="a legacy installer image"),
        pytest.param(
            replace(LEGACY, handlers=frozenset({"spin"})),
            (a_shim(KWASM, handler="spin", default=True),),
            id="a Shim that is called as the legacy image is",
        ),
    ],
)
def test_without_that_the_mark_stays(node: NodeView, shims: tuple[ShimView, ...]) -> None:
    assert deciding(node, *shims) == []


@pytest.mark.parametrize(("listed", "shims"), [({"spin"}, (SPIN, SLIGHT)), ({"spin", "slight"}, (SPIN,))])
def test_every_installed_shim_has_to_be_known_and_its_handler_listed(
    listed: set[str], shims: tuple[ShimView, ...]
) -> None:
    assert verification_by_now(replace(LATE, handlers=frozenset(listed)), shims) is VerifiedBy.JOB


def test_a_late_verification_removes_the_startup_taint_too() -> None:
    node = replace(LATE, handlers=frozenset({"runc", "spin", "slight"}), taints=(TAINT,))
    actions = deciding(node, SPIN, SLIGHT)
    assert verified(actions) == "handler"
    assert taints_left(actions) == []
