"""A handler that was verified and is no longer listed: the marks go, so that it is installed again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_watcher.domain.actions import (
    Action,
    GuardedDeletion,
    PatchNode,
    PublishedState,
    Reason,
    RecordEvent,
    Snapshot,
)
from node_watcher.domain.decide import decide
from trellis import names
from trellis.provisioning.views import JobState, JobView, NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_job, a_node, verified_node

WANTED = frozenset({"spin", "slight"})
HANDLERS = {"spin": "spin-v2", "slight": "slight-v1"}
LISTED = frozenset({"runc", "spin-v2", "slight-v1"})
READY = PublishedState("uid-node-1", opted_in=True, ready="digest")


def having(*listed: str, **digests: str) -> NodeView:
    """Return a node that is labelled with Shims and lists these handlers."""
    labels = (
        (names.LABEL_PROVISIONED, "node-1"),
        (names.LABEL_WASM_READY, names.WASM_READY),
        *((names.shim_label(name), names.SHIM_PROVISIONED) for name in digests),
    )
    node = verified_node(a_node(labels=labels), Target(tuple(sorted(digests.items()))).digest, "handler")
    return replace(
        node,
        shims=encode_digests(digests),
        provisioned="node-1",
        wasm=names.WASM_READY,
        handlers=frozenset(listed),
    )


def deciding(node: NodeView, job: JobView | None = None, **changes: Any) -> list[Action]:
    return decide(replace(Snapshot(node.name, node, job, READY, WANTED, HANDLERS), **changes))


def written(actions: list[Action]) -> dict[str, str | None]:
    [destroy] = actions
    assert isinstance(destroy, GuardedDeletion)  # a mass of them is held back by the breaker
    patch, event = destroy.steps
    assert isinstance(patch, PatchNode)
    assert isinstance(event, RecordEvent)
    assert (event.warning, event.reason) == (True, Reason.HANDLER_VANISHED)
    assert event.then == replace(READY, ready=None)  # ready is published again after the next verification
    prefix = "/metadata/"
    return {op["path"].removeprefix(prefix).replace("~1", "/"): op.get("value") for op in patch.ops[2:]}


def test_a_node_that_lost_all_its_handlers_starts_from_nothing() -> None:
    changes = written(deciding(having("runc", spin="1", slight="2")))
    assert changes.pop(f"annotations/{names.ANNOTATION_NODE_UID}", "x") is None
    assert changes[f"annotations/{names.ANNOTATION_SHIMS}"] is None
    assert {changes[f"labels/{name}"] for name in ("spin", "slight", names.LABEL_WASM_READY)} == {None}


def test_a_node_that_lost_one_handler_keeps_the_other() -> None:
    changes = written(deciding(having("runc", "slight-v1", spin="1", slight="2")))
    assert changes[f"annotations/{names.ANNOTATION_SHIMS}"] == "slight=2"
    assert changes[f"annotations/{names.ANNOTATION_DIGEST}"] == Target((("slight", "2"),)).digest
    assert changes["labels/spin"] is None
    assert not {"labels/slight", f"labels/{names.LABEL_WASM_READY}"} & changes.keys()


NODE = having("runc", spin="1", slight="2")


@pytest.mark.parametrize(
    ("node", "job", "changes"),
    [
        pytest.param(having(*LISTED, spin="1", slight="2"), None, {}, id="all are listed"),
        pytest.param(having(spin="1", slight="2"), None, {}, id="the node lists no handlers at all"),
        pytest.param(NODE, a_job(NODE), {}, id="an installer is at work"),
        pytest.param(NODE, a_job(NODE, JobState.COMPLETE, handlers=frozenset({"x"})), {}, id="its Job is not judged"),
        pytest.param(NODE, a_job(NODE, deleting=True), {}, id="its Job is going"),
        pytest.param(NODE, None, {"handlers": {}}, id="the Shim is not known"),
    ],
)
def test_the_marks_stay_where(node: NodeView, job: JobView | None, changes: dict[str, Any]) -> None:
    published = replace(READY, ready=node.marked_digest)
    assert not any(
        isinstance(action, GuardedDeletion) for action in deciding(node, job, published=published, **changes)
    )


def test_the_failed_job_of_another_attempt_hides_no_deletion() -> None:
    failed = a_job(NODE, JobState.FAILED, digest="other")
    assert written(deciding(NODE, failed))[f"annotations/{names.ANNOTATION_SHIMS}"] is None


def test_a_shim_to_remove_is_left_to_its_removal() -> None:
    actions = deciding(NODE, wanted=frozenset({"slight"}))
    [destroy] = actions
    assert isinstance(destroy, GuardedDeletion)
    assert "slight" in destroy.steps[0].message
    assert "spin" not in destroy.steps[0].message.partition(":")[0]
