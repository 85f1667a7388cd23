"""Worlds of one Node in, events and patches out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_watcher.domain.actions import (
    Action,
    GuardedDeletion,
    PatchNode,
    Publish,
    PublishedState,
    Reason,
    RecordEvent,
    Snapshot,
)
from node_watcher.domain.decide import decide
from trellis import names
from trellis.events.node import NodeOptedIn
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import wanted_on
from trellis.provisioning.views import REMOVE, JobState, JobView, NodeView, Target, encode_digests
from trellis_dev.testing.builders import DIGEST, OTHER_DIGEST, a_job, a_node, a_shim, failed, opted_in, verified_node


def deciding(
    node: NodeView | None,
    job: JobView | None = None,
    published: PublishedState | None = None,
    *,
    auto: bool = False,
    shims: tuple[ShimView, ...] = (),
    name: str = "node-1",
) -> list[Action]:
    wanted = wanted_on(node, shims, auto_provision=auto) if node else frozenset()
    handlers = {shim.name: shim.handler for shim in shims}
    return decide(Snapshot(node.name if node else name, node, job, published, wanted, handlers))


def events(actions: list[Action]) -> list[str]:
    return [f"{action.event.noun}.{action.event.event_name}" for action in actions if isinstance(action, Publish)]


def steps(actions: list[Action]) -> list[Action]:
    """Return the actions with what the breaker guards laid open."""
    return [step for action in actions for step in (action.steps if isinstance(action, GuardedDeletion) else (action,))]


def patch(actions: list[Action]) -> PatchNode:
    [found] = [action for action in steps(actions) if isinstance(action, PatchNode)]
    return found


def written(actions: list[Action]) -> dict[str, str | None]:
    """Return what the one patch writes, by the key's last path element; None for what it removes."""
    keys = {}
    for op in patch(actions).ops[2:]:
        keys[op["path"].removeprefix("/metadata/").replace("~1", "/")] = op.get("value")
    return keys


IN = PublishedState("uid-node-1", opted_in=True)


def test_an_annotated_node_is_published_once() -> None:
    node = opted_in(a_node())
    actions = deciding(node)
    assert events(actions) == ["node.opted_in"]
    assert isinstance(actions[0], Publish)
    assert actions[0].dedup == "uid-node-1.7.opted_in"
    assert deciding(node, published=actions[0].then) == []


def test_a_node_without_opt_in_is_not_changed() -> None:
    assert deciding(a_node()) == []


def test_auto_provisioning_opts_in_every_node_without_an_opt_out() -> None:
    assert events(deciding(a_node(), auto=True)) == ["node.opted_in"]
    assert deciding(a_node(opt_in="false"), auto=True) == []


@pytest.mark.parametrize("value", ["yes", "True", "", "1", "true "])
def test_an_invalid_value_causes_one_event_with_the_accepted_values(value: str) -> None:
    node = a_node(opt_in=value)
    [event] = deciding(node)
    assert isinstance(event, RecordEvent)
    assert event.warning
    assert event.reason is Reason.INVALID_ANNOTATION
    assert repr(value) in event.message
    assert "'true'" in event.message
    assert deciding(node, published=event.then) == []
    # a second wrong value is worth a second word
    assert len(deciding(a_node(opt_in="nope"), published=event.then)) == 1


def test_a_finished_job_without_known_handler_gives_kwasms_label_but_no_wasm_label() -> None:
    node = opted_in(a_node())
    actions = deciding(node, a_job(node, JobState.COMPLETE), IN)
    assert patch(actions).ops[:2] == (
        {"op": "test", "path": "/metadata/uid", "value": "uid-node-1"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version},
    )
    assert written(actions) == {
        f"labels/{names.LABEL_PROVISIONED}": "node-1",
        f"annotations/{names.ANNOTATION_DIGEST}": DIGEST,
        f"annotations/{names.ANNOTATION_VERIFIED}": "job",
        f"annotations/{names.ANNOTATION_NODE_UID}": "uid-node-1",
    }


def test_a_known_handler_is_believed_only_when_the_node_lists_it() -> None:
    node = opted_in(a_node())
    job = a_job(node, JobState.COMPLETE, handlers=frozenset({"spin"}))
    assert deciding(node, job, IN) == []
    shown = replace(node, handlers=frozenset({"runc", "spin"}))
    actions = deciding(shown, job, IN)
    assert written(actions)[f"labels/{names.LABEL_WASM_READY}"] == "ready"
    assert written(actions)[f"annotations/{names.ANNOTATION_VERIFIED}"] == "handler"


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.FAILED])
def test_no_label_without_success(state: JobState) -> None:
    node = opted_in(a_node())
    assert deciding(node, a_job(node, state), IN) == []


def test_a_job_of_a_former_node_proves_nothing() -> None:
    former = opted_in(a_node(uid="uid-former"))
    node = opted_in(a_node())
    assert deciding(node, a_job(former, JobState.COMPLETE), IN) == []


def test_a_ready_node_is_published_once_and_then_not_changed() -> None:
    node = verified_node(opted_in(a_node()))
    actions = deciding(node, published=IN)
    assert events(actions) == ["node.ready"]
    assert isinstance(actions[0], Publish)
    assert deciding(node, published=actions[0].then) == []


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(replace(verified_node(opted_in(a_node())), provisioned=None), id="KWasm's label removed"),
        pytest.param(replace(verified_node(opted_in(a_node())), provisioned="other"), id="KWasm's label changed"),
        pytest.param(
            replace(verified_node(opted_in(a_node()), verified="handler"), wasm=None), id="wasm label removed"
        ),
        pytest.param(replace(verified_node(opted_in(a_node())), wasm="ready"), id="wasm label without verification"),
    ],
)
def test_labels_changed_by_hand_come_back(node: NodeView) -> None:
    actions = deciding(node, published=replace(IN, ready=DIGEST))
    assert patch(actions).reason is Reason.LABELS_RESTORED


def test_restoring_labels_keeps_the_record_of_a_later_failure() -> None:
    node = failed(replace(verified_node(opted_in(a_node())), provisioned=None), OTHER_DIGEST, attempt=3)
    actions = deciding(node, published=replace(IN, ready=DIGEST))
    assert written(actions) == {f"labels/{names.LABEL_PROVISIONED}": "node-1"}


def test_a_judged_failure_is_shown_on_the_node_once() -> None:
    node = opted_in(a_node())
    job = a_job(node, JobState.FAILED, failure="InstallerFailed: no space left on device", attempt=2)
    actions = deciding(node, job, IN)
    assert written(actions) == {
        f"annotations/{names.ANNOTATION_NODE_UID}": "uid-node-1",
        f"annotations/{names.ANNOTATION_FAILURE}": "attempt 2: InstallerFailed: no space left on device",
        f"annotations/{names.ANNOTATION_FAILED_ATTEMPT}": f"{DIGEST}/2/1010",
    }
    [event] = [action for action in actions if isinstance(action, RecordEvent)]
    assert event.warning
    assert "no space left on device" in event.message
    assert deciding(failed(node, attempt=2, at=1010), job, IN) == []
    given_up_before = failed(node, attempt=2, at=1000)  # the same attempt, when its Job had not ended yet
    assert deciding(given_up_before, job, IN) == []


def test_a_verification_after_the_verdict_takes_precedence() -> None:
    node = failed(opted_in(a_node(handlers=frozenset({"spin"}))))
    job = a_job(node, JobState.COMPLETE, handlers=frozenset({"spin"}), failure="HandlerMissing: too late")
    actions = deciding(node, job, IN)
    assert patch(actions).reason is Reason.PROVISION_SUCCEEDED
    assert written(actions)[f"annotations/{names.ANNOTATION_FAILURE}"] is None


def test_opting_out_is_published_and_removes_every_label() -> None:
    node = failed(verified_node(a_node()), OTHER_DIGEST)
    actions = deciding(node, published=IN)
    assert events(actions) == ["node.opted_out"]
    assert set(written(actions).values()) == {None}
    [event] = [action for action in steps(actions) if isinstance(action, RecordEvent)]
    assert event.reason is Reason.RUNTIME_LEFT


def test_labels_of_a_ready_node_are_removed_only_if_the_circuit_breaker_permits_it() -> None:
    guarded = [
        deciding(verified_node(a_node()), published=IN),
        deciding(verified_node(a_node(opt_in="maybe"), verified="handler"), published=IN),
        deciding(replace(verified_node(opted_in(a_node())), uid="uid-new")),
    ]
    for actions in guarded:
        assert not [action for action in actions if isinstance(action, PatchNode)]
        [destroy] = [action for action in actions if isinstance(action, GuardedDeletion)]
        assert (destroy.target.kind, destroy.target.name) == ("nodes", "node-1")


def test_removing_the_record_of_a_failure_is_not_a_deletion() -> None:
    actions = deciding(failed(a_node()), published=IN)
    assert [type(action) for action in actions] == [Publish, PatchNode]


def test_an_opt_out_during_downtime_is_found_by_the_labels() -> None:
    actions = deciding(verified_node(a_node()))
    assert events(actions) == ["node.opted_out"]


def test_opting_out_and_in_again_is_published_again() -> None:
    node = opted_in(a_node(resource_version="9"))
    assert events(deciding(node, published=PublishedState("uid-node-1", opted_in=False))) == ["node.opted_in"]


def test_a_node_under_a_former_ones_name_starts_from_nothing() -> None:
    former = verified_node(opted_in(a_node()))
    node = replace(former, uid="uid-new")
    actions = deciding(node, published=IN)
    assert events(actions) == ["node.replaced"]
    assert set(written(actions).values()) == {None}
    assert patch(actions).ops[0] == {"op": "test", "path": "/metadata/uid", "value": "uid-new"}
    # once the marks are gone it is opted in like any other
    clean = opted_in(a_node(uid="uid-new"))
    assert events(deciding(clean, published=PublishedState("uid-new"))) == ["node.opted_in"]


def test_a_deleted_node_is_published_once_if_it_had_opted_in() -> None:
    actions = deciding(None, published=IN)
    assert events(actions) == ["node.gone"]
    assert isinstance(actions[0], Publish)
    assert actions[0].then is None
    assert deciding(None) == []
    assert deciding(None, published=PublishedState("uid-node-1", opted_in=False)) == []


def test_a_name_of_253_characters_is_shortened_in_the_label_and_whole_in_the_annotation() -> None:
    name = ".".join(["a" * 60] * 4) + "." + "b" * 9
    assert len(name) == 253
    node = opted_in(a_node(name))
    actions = deciding(node, a_job(node, JobState.COMPLETE), PublishedState(node.uid, opted_in=True))
    label = written(actions)[f"labels/{names.LABEL_PROVISIONED}"]
    assert label is not None
    assert len(label) == 63
    assert written(actions)[f"annotations/{names.LABEL_PROVISIONED}"] == name


def test_marks_edited_into_nonsense_count_as_none() -> None:
    node = replace(verified_node(opted_in(a_node())), verified="trust me", failed_attempt="//")
    assert node.marked_digest is None
    assert node.failed is None


def test_a_node_without_any_annotations_gets_the_map_first() -> None:
    node = opted_in(a_node(has_labels=False))
    job = a_job(node, JobState.COMPLETE)
    paths = [op["path"] for op in patch(deciding(node, job, IN)).ops]
    assert paths[2] == "/metadata/labels"


def test_a_label_left_on_a_node_by_kwasm_is_not_removed() -> None:
    assert deciding(a_node(provisioned="node-1")) == []
    assert deciding(a_node(provisioned="node-1", opt_in="false"), auto=True) == []


def test_a_node_that_kwasm_labelled_before_a_verification_is_provisioned_like_any_other() -> None:
    node = opted_in(a_node(provisioned="node-1"))
    assert events(deciding(node)) == ["node.opted_in"]
    actions = deciding(node, a_job(node, JobState.COMPLETE), IN)
    assert patch(actions).reason is Reason.PROVISION_SUCCEEDED


SPIN = a_shim("spin", selector=(("pool", "wasm"),))
SLIGHT = a_shim("slight", selector=(("pool", "wasm"),))
POOLED = a_node(labels=(("pool", "wasm"),))


def shim_job(node: NodeView, digests: dict[str, str], state: JobState = JobState.COMPLETE, **changes: Any) -> JobView:
    """Return a Job of our own installer that leads to these digests; the handlers are called like the Shims."""
    target = Target(tuple(sorted(digests.items())))
    installs = encode_digests(digests)
    return a_job(node, state, digest=target.digest, installs=installs, handlers=frozenset(digests), **changes)


def having(node: NodeView, digests: dict[str, str]) -> NodeView:
    """Return the node as it is once these are verified on it."""
    target = Target(tuple(sorted(digests.items())))
    labels = tuple((name, names.SHIM_PROVISIONED) for name in digests)
    return replace(
        verified_node(node, target.digest, "handler"),
        labels=(*node.labels, *labels),
        shims=encode_digests(digests),
        handlers=frozenset({"runc", *digests}),
    )


def test_a_node_that_a_shim_selects_is_opted_in() -> None:
    [published] = deciding(POOLED, shims=(SPIN,))
    assert isinstance(published, Publish)
    assert isinstance(published.event, NodeOptedIn)
    assert published.event.by == "NodeSelector"
    assert deciding(a_node(), shims=(SPIN,)) == []


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.COMPLETE], ids=["in progress", "not recorded yet"])
def test_a_node_that_opts_in_during_its_removal_has_no_label_before_the_next_installation(state: JobState) -> None:
    having_spin = having(POOLED, {"spin": "d1"})
    node = replace(having_spin, labels=POOLED.labels, provisioned=None, wasm=None)
    removal = shim_job(node, {}, state, operation=REMOVE, removed_handlers=frozenset({"spin"}))
    assert deciding(node, removal, IN, shims=(SPIN,)) == []
    assert written(deciding(node, None, IN, shims=(SPIN,)))["labels/spin"] == "provisioned"
    failed_removal = replace(removal, state=JobState.FAILED)
    assert written(deciding(node, failed_removal, IN, shims=(SPIN,)))["labels/spin"] == "provisioned"


def test_verified_shims_are_labelled_each_and_recorded_by_their_digests() -> None:
    node = replace(POOLED, handlers=frozenset({"runc", "spin", "slight"}))
    actions = deciding(node, shim_job(node, {"spin": "d1", "slight": "d2"}), IN, shims=(SPIN, SLIGHT))
    assert written(actions) == {
        f"labels/{names.LABEL_PROVISIONED}": "node-1",
        f"labels/{names.LABEL_WASM_READY}": "ready",
        "labels/spin": "provisioned",
        "labels/slight": "provisioned",
        f"annotations/{names.ANNOTATION_DIGEST}": Target((("slight", "d2"), ("spin", "d1"))).digest,
        f"annotations/{names.ANNOTATION_SHIMS}": "slight=d2 spin=d1",
        f"annotations/{names.ANNOTATION_VERIFIED}": "handler",
        f"annotations/{names.ANNOTATION_NODE_UID}": "uid-node-1",
    }
    done = having(node, {"spin": "d1", "slight": "d2"})
    assert events(deciding(done, shim_job(done, {"spin": "d1", "slight": "d2"}), IN, shims=(SPIN, SLIGHT))) == [
        "node.ready"
    ]


def test_one_handler_of_two_does_not_verify_the_node() -> None:
    node = replace(POOLED, handlers=frozenset({"runc", "spin"}))
    assert deciding(node, shim_job(node, {"spin": "d1", "slight": "d2"}), IN, shims=(SPIN, SLIGHT)) == []


def test_one_of_two_shims_that_is_no_longer_selected_loses_its_label_first_under_the_circuit_breaker() -> None:
    node = having(POOLED, {"spin": "d1", "slight": "d2"})
    [held] = deciding(node, published=replace(IN, ready=node.digest), shims=(SPIN,))
    assert isinstance(held, GuardedDeletion)
    assert written([held]) == {"labels/slight": None}


def test_the_last_shim_loses_all_labels_first_and_the_record_when_the_handler_is_removed() -> None:
    node = having(POOLED, {"spin": "d1"})
    actions = deciding(node, published=IN)
    assert events(actions) == ["node.opted_out"]
    assert written(actions) == {
        "labels/spin": None,
        f"labels/{names.LABEL_PROVISIONED}": None,
        f"labels/{names.LABEL_WASM_READY}": None,
    }
    bare = replace(node, labels=POOLED.labels, provisioned=None, wasm=None)
    out = PublishedState("uid-node-1", opted_in=False)
    removal = shim_job(bare, {}, removed_handlers=frozenset({"spin"}))
    assert deciding(bare, removal, out) == []  # the node still lists the handler
    deleted = replace(bare, handlers=frozenset({"runc"}))
    assert written(deciding(deleted, removal, out)) == {
        f"annotations/{names.ANNOTATION_DIGEST}": None,
        f"annotations/{names.ANNOTATION_SHIMS}": None,
        f"annotations/{names.ANNOTATION_VERIFIED}": None,
        f"annotations/{names.ANNOTATION_NODE_UID}": None,
    }


def test_leftovers_of_an_unneeded_job_are_recorded_without_labels() -> None:
    job = shim_job(POOLED, {"spin": "d1"})  # its handler does not show yet
    out = PublishedState("uid-node-1", opted_in=False)
    assert written(deciding(POOLED, job, out)) == {
        f"annotations/{names.ANNOTATION_DIGEST}": Target((("spin", "?"),)).digest,
        f"annotations/{names.ANNOTATION_SHIMS}": "spin=?",
        f"annotations/{names.ANNOTATION_VERIFIED}": "job",
        f"annotations/{names.ANNOTATION_NODE_UID}": "uid-node-1",
    }
    node = having(POOLED, {"slight": "d2"})
    both = shim_job(node, {"spin": "d1", "slight": "d2"})
    actions = deciding(node, both, replace(IN, ready=node.digest), shims=(SLIGHT,))
    assert written(actions) == {
        f"annotations/{names.ANNOTATION_DIGEST}": Target((("slight", "d2"), ("spin", "?"))).digest,
        f"annotations/{names.ANNOTATION_SHIMS}": "slight=d2 spin=?",
    }


def test_a_removal_that_failed_stands_on_the_node_once() -> None:
    node = replace(having(POOLED, {"spin": "d1"}), labels=POOLED.labels, provisioned=None, wasm=None)
    out = PublishedState("uid-node-1", opted_in=False)
    job = shim_job(node, {}, JobState.FAILED, failure="ShimsInUse: pods run", removed_handlers=frozenset({"spin"}))
    actions = deciding(node, job, out)
    assert "ShimsInUse" in (written(actions)[f"annotations/{names.ANNOTATION_FAILURE}"] or "")
    noted = replace(node, failure="x", failed_attempt=f"{job.digest}/1/1010")
    assert deciding(noted, job, out) == []


BLAMED = f"annotations/{names.ANNOTATION_BLAMED}"


def test_a_blamed_shim_stays_on_the_node_until_it_succeeds() -> None:
    job = shim_job(POOLED, {"spin": "d1", "slight": "d2"}, JobState.FAILED, failure="x: y", blamed="spin=d1")
    assert written(deciding(POOLED, job, IN, shims=(SPIN, SLIGHT)))[BLAMED] == "spin=d1"
    # The others alone failed next: it was not tried, so it stays.
    node = replace(failed(POOLED, job.digest), failed_shims="spin=d1")
    alone = shim_job(node, {"slight": "d2"}, JobState.FAILED, failure="x: y", attempt=2, blamed="slight=d2")
    assert written(deciding(node, alone, IN, shims=(SPIN, SLIGHT)))[BLAMED] == "slight=d2 spin=d1"
    # Both were tried next, and one is named: the other is not blamed any more.
    both = replace(node, failed_shims="slight=d2 spin=d1")
    again = replace(job, attempt=3)
    assert written(deciding(both, again, IN, shims=(SPIN, SLIGHT)))[BLAMED] == "spin=d1"


def test_the_verification_of_the_others_leaves_the_record_of_what_failed() -> None:
    tried = Target((("slight", "d2"), ("spin", "d1")))
    node = replace(failed(POOLED, tried.digest), failed_shims="spin=d1", handlers=frozenset({"runc", "slight"}))
    actions = deciding(node, shim_job(node, {"slight": "d2"}), IN, shims=(SPIN, SLIGHT))
    assert not {BLAMED, f"annotations/{names.ANNOTATION_FAILED_ATTEMPT}"} & written(actions).keys()
    nobody_wants_it = deciding(node, shim_job(node, {"slight": "d2"}), IN, shims=(SLIGHT,))
    assert written(nobody_wants_it)[BLAMED] is None
    shown = replace(node, handlers=frozenset({"runc", "slight", "spin"}))
    all_well = deciding(shown, shim_job(shown, {"slight": "d2", "spin": "d1"}), IN, shims=(SPIN, SLIGHT))
    assert written(all_well)[BLAMED] is None


def test_an_annotation_of_another_value_keeps_the_shims_off_and_is_answered() -> None:
    node = replace(POOLED, opt_in="maybe")
    [event] = deciding(node, shims=(SPIN,))
    assert isinstance(event, RecordEvent)
