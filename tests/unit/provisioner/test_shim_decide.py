"""A Shim's finalizer, RuntimeClass and status: worlds in, actions out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.domain.shim_decide import (
    Action,
    ApplyRuntimeClass,
    DeleteRuntimeClass,
    DropRevision,
    KeepRevision,
    RecordShimEvent,
    SetFinalizer,
    WriteStatus,
    decide,
    wanted_labels,
    wanted_placement,
)
from provisioner.domain.shim_nodes import Member, Tally
from provisioner.domain.shim_resources import make_runtime_class, view_runtime_class
from provisioner.domain.shim_snapshot import RuntimeClassView, Snapshot
from support.suite.naming import lacking
from trellis import names
from trellis.crds.conditions import MESSAGE_MAX
from trellis.installer_api.spec import Source, WantedShim
from trellis.provisioning.other_controllers import Controller, Peer
from trellis.provisioning.placement import Placement, Toleration
from trellis.provisioning.revisions import KEPT, Revision
from trellis.provisioning.shim_status import OTHER_CONTROLLER, Condition, Counts, Status, make_status, read_status
from trellis.provisioning.shims import Refusal, ShimView, wanted_shim_for
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_node, a_shim, failed, verified_node

SPIN = a_shim(finalizers=(names.FINALIZER,))
NOW = "2026-01-31T12:00:00Z"


def wanted_shim() -> WantedShim:
    found = wanted_shim_for(SPIN, "amd64", require_checksum=True)
    assert isinstance(found, WantedShim)
    return found


def having(name: str, digest: str) -> NodeView:
    node = a_node(name)
    shims = {"spin": digest}
    return replace(verified_node(node, Target(tuple(shims.items())).digest, "handler"), shims=encode_digests(shims))


def ours(shim: ShimView = SPIN, **changes: Any) -> RuntimeClassView:
    found = RuntimeClassView(
        name="spin",
        uid="uid-rc",
        resource_version="3",
        handler=shim.handler,
        overhead=(),
        placement=wanted_placement(shim),
        owner=shim.uid,
        labels=wanted_labels(shim),
    )
    return replace(found, **changes)


def deciding(
    *nodes: NodeView,
    shim: ShimView = SPIN,
    refusal: Refusal | None = None,
    status: Status | None = None,
    holders: tuple[NodeView, ...] = (),
    rival: str = "",
    **changes: Any,
) -> list[Action]:
    """Decide with nodes that the Shim is for, and ``holders`` that it is not for and that have it."""
    members = [Member(node, refusal or wanted_shim(), node.installed.get("spin"), rival) for node in nodes]
    to_remove = [Member(node, None, node.installed.get("spin", "")) for node in holders]
    snapshot = Snapshot(
        shim=shim,
        status=status or Status(),
        runtime_class=ours(),
        nodes=Tally([*members, *to_remove]).nodes(),
        holders=holders,
        in_progress=(),
        failing=(),
        halted=False,
        patience_over=False,
        now=NOW,
    )
    return decide(replace(snapshot, **changes))


def written(actions: list[Action]) -> Status:
    [found] = [action for action in actions if isinstance(action, WriteStatus)]
    return found.status


def condition(actions: list[Action], kind: str) -> tuple[str, str]:
    [found] = [item for item in written(actions).conditions if item.type == kind]
    return found.status, found.reason


def test_a_new_shim_gets_a_finalizer_a_runtime_class_and_a_status() -> None:
    shim = a_shim()
    actions = deciding(a_node(), shim=shim, runtime_class=None)
    assert [type(action) for action in actions] == [SetFinalizer, ApplyRuntimeClass, WriteStatus]
    assert written(actions).counts == Counts(nodes=1)
    assert condition(actions, "Available") == ("False", "NodesNotReady")
    assert condition(actions, "Progressing") == ("True", "Updating")
    assert condition(actions, "Degraded") == ("False", "Healthy")


def test_all_nodes_ready_is_available_and_done() -> None:
    actions = deciding(having("a", wanted_shim().digest), having("b", wanted_shim().digest))
    assert written(actions).counts == Counts(2, 2, 2, 0)
    assert condition(actions, "Available") == ("True", "AllNodesReady")
    assert condition(actions, "Progressing") == ("False", "Updated")


def test_nodes_that_are_not_ready_are_named_while_there_is_something_to_do_there() -> None:
    def progressing(*nodes: NodeView, **changes: Any) -> str:
        found = written(deciding(*nodes, **changes)).conditions
        return next(item.message for item in found if item.type == "Progressing")

    unavailable, done = replace(a_node("a"), ready=False), replace(having("b", wanted_shim().digest), ready=False)
    waiting = progressing(unavailable, done)
    assert (lacking(waiting, "1 of 2 nodes", "0"), waiting.endswith(": a")) == ([], True)
    finished = progressing(done)
    assert (lacking(finished, "1 of 1 nodes", "0"), ";" in finished) == ([], False)
    removing = progressing(shim=DELETING, holders=(done, having("c", "1")))
    assert (lacking(removing, "2 nodes", "0"), removing.endswith(": b")) == ([], True)


def test_the_status_names_the_version_that_nodes_are_brought_to() -> None:
    assert written(deciding(having("b", "old"), a_node("c"))).digest == wanted_shim().digest
    assert written(deciding()).digest == ""
    several = [
        Member(a_node(f"node-{n}"), replace(wanted_shim(), digest=digest), None) for n, digest in enumerate("212")
    ]
    assert written(deciding(nodes=Tally(several).nodes())).digest == "1,2"


def test_an_unverified_shim_is_neither_ready_nor_updated() -> None:
    assert written(deciding(having("b", f"?{wanted_shim().digest}"))).counts == Counts(1, 0, 0, 0)


def test_an_older_version_is_ready_but_not_updated() -> None:
    actions = deciding(having("a", wanted_shim().digest), having("b", "older"), in_progress=(a_node("busy"),))
    assert written(actions).counts == Counts(2, 2, 1, 0)
    assert condition(actions, "Available")[0] == "True"
    assert condition(actions, "Progressing") == ("True", "Updating")


def test_the_same_again_writes_nothing() -> None:
    first = written(deciding(a_node()))
    assert deciding(a_node(), status=first, now="2026-02-01T00:00:00Z") == []


def test_the_time_of_a_condition_is_that_of_its_last_change_of_status() -> None:
    before = written(deciding(a_node()))
    later = written(deciding(having("a", wanted_shim().digest), status=before, now="2026-02-01T00:00:00Z"))
    since = {item.type: item.since for item in later.conditions}
    changed = {"Ready", "Reconciling", "Available", "Progressing"}
    assert since == {"Degraded": NOW, "Stalled": NOW} | dict.fromkeys(changed, "2026-02-01T00:00:00Z")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"shim": replace(SPIN, paused=True)}, "Paused", id="paused"),
        pytest.param({"halted": True}, "RolloutHalted", id="halted"),
    ],
)
def test_a_stopped_rollout_states_the_reason(changes: dict[str, Any], reason: str) -> None:
    assert condition(deciding(a_node(), **changes), "Progressing") == ("False", reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"refusal": Refusal.CHECKSUM_MISSING}, "ChecksumMissing", id="no checksum"),
        pytest.param({"refusal": Refusal.UNSIGNED}, "Unsigned", id="nobody signed it"),
        pytest.param({"refusal": Refusal.NO_SOURCE}, "NoSourceForPlatform", id="no source"),
        pytest.param({"shim": replace(SPIN, invalid="spec: bad")}, "InvalidShim", id="cannot be read"),
        pytest.param({"runtime_class": ours(owner="another")}, "RuntimeClassConflict", id="another's class"),
        pytest.param({"runtime_class": ours(owner="", handler="x")}, "RuntimeClassConflict", id="a person's class"),
    ],
)
def test_a_blocked_shim_is_degraded_and_recorded_as_an_event_once(changes: dict[str, Any], reason: str) -> None:
    actions = deciding(a_node(), **changes)
    assert condition(actions, "Degraded") == ("True", reason)
    [event] = [action for action in actions if isinstance(action, RecordShimEvent)]
    assert event.reason == reason
    assert event.message
    assert not any(isinstance(action, ApplyRuntimeClass) for action in actions if reason == "RuntimeClassConflict")
    again = deciding(a_node(), status=written(actions), **changes)
    assert not any(isinstance(action, RecordShimEvent) for action in again)


def test_a_rollout_that_is_complete_is_an_event_once() -> None:
    before = written(deciding(a_node("a")))
    actions = deciding(having("a", wanted_shim().digest), status=before)
    [event] = [action for action in actions if isinstance(action, RecordShimEvent)]
    assert (event.reason, event.warning) == ("RolloutComplete", False)
    later = deciding(having("a", wanted_shim().digest), having("b", wanted_shim().digest), status=written(actions))
    assert not any(isinstance(action, RecordShimEvent) for action in later)


FAILED = failed(a_node("a"))
FAILING = ((FAILED, "attempt 1: it broke"),)
DONE = having("a", wanted_shim().digest)


@pytest.mark.parametrize(
    ("nodes", "changes", "health"),
    [
        pytest.param((DONE,), {}, ("True", "False", "False", "AllNodesReady"), id="all nodes have it"),
        pytest.param((), {}, ("True", "False", "False", "NoNodes"), id="no node requires it"),
        pytest.param((a_node(),), {}, ("False", "True", "False", "Updating"), id="the rollout is in progress"),
        pytest.param(
            (FAILED,), {"failing": FAILING}, ("False", "True", "False", "NodesFailing"), id="a node is retried"
        ),
        pytest.param(
            (a_node(),), {"class_refused": "no"}, ("False", "True", "False", "RuntimeClassRefused"), id="it is refused"
        ),
        pytest.param(
            (FAILED,),
            {"failing": FAILING, "halted": True},
            ("False", "False", "True", "RolloutHalted"),
            id="the rollout halted",
        ),
        pytest.param(
            (a_node(),),
            {"refusal": Refusal.HANDLER_CONFLICT, "rival": "other"},
            ("False", "False", "True", "HandlerConflict"),
            id="another Shim has the handler",
        ),
        pytest.param(
            (a_node(),), {"shim": replace(SPIN, paused=True)}, ("False", "False", "False", "Paused"), id="paused"
        ),
        pytest.param(
            (DONE,), {"shim": replace(SPIN, paused=True)}, ("True", "False", "False", "AllNodesReady"), id="late"
        ),
    ],
)
def test_health_follows_from_its_own_conditions(
    nodes: tuple[NodeView, ...], changes: dict[str, Any], health: tuple[str, ...]
) -> None:
    found = {item.type: item for item in written(deciding(*nodes, **changes)).conditions}
    statuses = tuple(found[kind].status for kind in ("Ready", "Reconciling", "Stalled"))
    assert (*statuses, found["Ready"].reason) == health
    assert {item.observed_generation for item in found.values()} == {SPIN.generation}
    explaining = [item for kind, item in found.items() if kind not in {"Ready", "Reconciling", "Stalled"}]
    assert found["Ready"].message in {item.message for item in explaining}, "the whole text is in another condition"


@pytest.mark.parametrize("given", ["failing", "in_use", "drain_blocked", "refused"])
def test_the_cause_is_not_cut_off_by_the_names_of_many_nodes(given: str) -> None:
    nodes = [a_node(f"ip-10-0-12-{number}.eu-central-1.compute.internal") for number in range(9)]
    cause = "HandlerMissing: the node does not list handler 'spin'"
    found = [(node, "InstallerRefused", cause) if given == "refused" else (node, cause) for node in nodes]
    for item in written(deciding(*nodes, **{given: tuple(found)})).conditions:
        if item.type in {"Ready", "Reconciling"}:
            assert (lacking(item.message, nodes[-1 if given == "refused" else 0].name, cause)) == []
            assert len(item.message) <= MESSAGE_MAX


def test_a_failing_node_is_named_with_its_own_words() -> None:
    broken = failed(a_node("a"))
    actions = deciding(broken, a_node("b"), failing=((broken, "attempt 1: it broke"),))
    assert written(actions).counts.failed == 1
    [degraded] = [item for item in written(actions).conditions if item.type == "Degraded"]
    assert degraded.reason == "NodesFailing"
    assert lacking(degraded.message, "node a", "it broke") == []


def test_a_failure_of_what_a_node_is_no_longer_to_have_is_no_failure() -> None:
    actions = deciding(failed(a_node("a"), "older"), a_node("b"))
    assert written(actions).counts.failed == 0
    assert condition(actions, "Degraded") == ("False", "Healthy")


def degraded(actions: list[Action]) -> Condition:
    return next(item for item in written(actions).conditions if item.type == "Degraded")


def test_a_handler_of_another_shim_is_reported_with_both_names() -> None:
    found = degraded(deciding(a_node("node-1"), refusal=Refusal.HANDLER_CONFLICT, rival="spin-old"))
    assert (found.status, found.reason) == ("True", "HandlerConflict")
    assert lacking(found.message, "Shim spin-old", "'spin'", "node-1") == []


def test_a_label_by_which_another_shim_selects_is_reported_with_both_names() -> None:
    found = degraded(deciding(a_node("node-1"), refusal=Refusal.LABEL_CONFLICT, rival="spin-v2"))
    assert (found.status, found.reason) == ("True", "LabelConflict")
    assert lacking(found.message, "Shim spin-v2", "label 'spin'", "node-1") == []


def test_a_copy_of_a_shim_conflicts_over_the_handler_before_the_runtime_class() -> None:
    another = ours(owner="uid-first", owner_name="first")
    found = degraded(deciding(a_node(), refusal=Refusal.HANDLER_CONFLICT, rival="first", runtime_class=another))
    assert found.reason == "HandlerConflict"
    assert degraded(deciding(a_node(), runtime_class=another)).reason == "RuntimeClassConflict"


def test_the_reason_why_a_shim_stays_on_a_node_is_reported() -> None:
    held = having("node-1", "old")
    reason = "spin cannot be removed: apps/web still run with it"
    deleting = replace(SPIN, deleting=True)
    found = degraded(deciding(shim=deleting, holders=(held,), in_use=((held, reason),)))
    assert (found.status, found.reason) == ("True", "RuntimeInUse")
    assert lacking(found.message, "node-1", reason) == []


def test_a_runtime_class_that_is_refused_is_reported() -> None:
    found = degraded(deciding(a_node("node-1"), class_refused="422 Invalid: metadata.name"))
    assert (found.status, found.reason) == ("True", "RuntimeClassRefused")
    assert lacking(found.message, "'spin'", "422 Invalid: metadata.name") == []


def test_a_shim_that_cannot_be_read_keeps_the_counts_of_the_nodes_that_have_it() -> None:
    node = having("node-1", "old")
    broken = replace(SPIN, invalid="spec: broken")
    status = written(deciding(node, shim=broken, refusal=Refusal.INVALID, holders=(node,)))
    assert (status.counts.nodes, status.counts.ready, status.counts.updated) == (1, 1, 0)


def test_an_equal_unmanaged_runtime_class_is_adopted() -> None:
    found = ours(owner="")
    assert deciding(a_node(), runtime_class=found)[0] == ApplyRuntimeClass(SPIN, found)


DELETING = replace(SPIN, deleting=True)


def test_a_deleted_shim_waits_until_no_node_has_it() -> None:
    holder = having("a", "1")
    actions = deciding(shim=DELETING, holders=(holder,))
    assert condition(actions, "Progressing") == ("True", "Removing")
    busy = (a_node("busy"),)
    assert deciding(shim=DELETING, in_progress=busy, status=written(deciding(shim=DELETING, in_progress=busy))) == []
    assert deciding(shim=DELETING) == [DeleteRuntimeClass(ours()), SetFinalizer(DELETING, present=False)]
    another = ours(owner="another")
    assert deciding(shim=DELETING, runtime_class=another) == [SetFinalizer(DELETING, present=False)]


def test_nodes_that_cannot_be_reached_are_waited_for_only_so_long() -> None:
    dead = replace(having("a", "1"), ready=False)
    assert not any(isinstance(action, SetFinalizer) for action in deciding(shim=DELETING, holders=(dead,)))
    warn, _, finalizer = deciding(shim=DELETING, holders=(dead,), patience_over=True)
    assert isinstance(warn, RecordShimEvent)
    assert "a" in warn.message
    assert isinstance(finalizer, SetFinalizer)
    alive = having("b", "1")
    actions = deciding(shim=DELETING, holders=(dead, alive), patience_over=True)
    assert not any(isinstance(action, SetFinalizer) for action in actions)


def test_a_shim_deleted_without_the_finalizer_is_ignored() -> None:
    assert deciding(shim=replace(DELETING, finalizers=())) == []


PLACEMENT = Placement(
    (("tier", "edge"),),
    (Toleration("dedicated", value="wasm", effect="NoSchedule"), Toleration("spot", "Exists", "", "NoExecute", 60)),
)
PLACED = replace(SPIN, placement=PLACEMENT)


def test_the_runtime_class_has_the_placement_of_the_shim_and_its_label() -> None:
    manifest = make_runtime_class(PLACED)
    assert manifest["scheduling"] == {
        "nodeSelector": {"spin": "provisioned", "tier": "edge"},
        "tolerations": [
            {"key": "dedicated", "value": "wasm", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        ],
    }
    assert manifest["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "trellis", "trellis.dev/shim": "spin"}


def restored(actions: list[Action]) -> list[str]:
    return [
        action.message
        for action in actions
        if isinstance(action, RecordShimEvent) and action.reason == "RuntimeClassRestored"
    ]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"placement": wanted_placement(SPIN)}, "nodeSelector, scheduling.tolerations", id="placement"),
        pytest.param({"placement": Placement()}, "nodeSelector", id="no label"),
        pytest.param({"overhead": (("cpu", "1"),)}, "overhead", id="overhead"),
        pytest.param({"handler": "other"}, "handler", id="replaced by one with another handler"),
        pytest.param({"labels": ()}, "", id="labels"),
        pytest.param({"owner": ""}, "", id="no owner any more"),
    ],
)
def test_a_runtime_class_that_another_client_changed_is_written_again(changes: dict[str, Any], named: str) -> None:
    found = ours(PLACED, **changes)
    observed = Status(observed_generation=PLACED.generation)
    actions = deciding(a_node(), shim=PLACED, runtime_class=found, status=observed)
    assert actions[0] == ApplyRuntimeClass(PLACED, found)
    assert [named in message for message in restored(actions)] == ([True] if named else [])


def test_a_runtime_class_that_another_client_deleted_is_created_again_and_reported() -> None:
    observed = Status(observed_generation=SPIN.generation)
    actions = deciding(a_node(), runtime_class=None, status=observed)
    assert actions[0] == ApplyRuntimeClass(SPIN, None)
    assert [lacking(message, "RuntimeClass spin", "deleted") for message in restored(actions)] == [[]]


def test_a_changed_spec_and_an_ended_conflict_are_no_changes_of_another_client() -> None:
    found = ours()
    assert not restored(deciding(a_node(), shim=replace(PLACED, generation=2), runtime_class=found))
    assert not restored(deciding(a_node(), shim=PLACED, runtime_class=None))
    conflict = Condition("Degraded", "True", "RuntimeClassConflict", "", NOW, 1)
    ended = Status(conditions=(conflict,), observed_generation=SPIN.generation)
    actions = deciding(a_node(), runtime_class=None, status=ended)
    assert (actions[0], restored(actions)) == (ApplyRuntimeClass(SPIN, None), [])
    refused = Status(observed_generation=SPIN.generation)
    assert not restored(deciding(a_node(), runtime_class=None, status=refused, class_refused="no"))


def test_labels_of_others_and_another_form_of_an_amount_are_no_difference() -> None:
    shim = replace(PLACED, overhead=(("cpu", "0.5"), ("memory", "1024Mi")))
    found = ours(shim, labels=(*wanted_labels(shim), ("team", "a")), overhead=(("cpu", "500m"), ("memory", "1Gi")))
    status = written(deciding(a_node(), shim=shim, runtime_class=found))
    assert deciding(a_node(), shim=shim, runtime_class=found, status=status) == []


@pytest.mark.parametrize("found", [None, ours(owner="")], ids=["none yet", "one without owner"])
def test_a_runtime_class_without_owner_is_that_of_the_older_shim(found: RuntimeClassView | None) -> None:
    actions = deciding(a_node(), runtime_class=found, class_rival="spin-first")
    assert not any(isinstance(action, ApplyRuntimeClass) for action in actions)
    conflict = degraded(actions)
    assert (conflict.reason, lacking(conflict.message, "RuntimeClass spin", "Shim spin-first")) == (
        "RuntimeClassConflict",
        [],
    )


def test_the_owner_of_a_runtime_class_keeps_it_beside_an_older_shim() -> None:
    actions = deciding(a_node(), shim=PLACED, runtime_class=ours(), class_rival="spin-first")
    assert actions[0] == ApplyRuntimeClass(PLACED, ours())
    assert degraded(actions).status == "False"


def test_a_placement_that_no_node_matches_is_reported_with_the_nodes() -> None:
    members = [Member(a_node("a"), wanted_shim(), None, placeable=False)]
    actions = deciding(shim=PLACED, runtime_class=ours(PLACED), nodes=Tally(members).nodes())
    [available] = [item for item in written(actions).conditions if item.type == "Available"]
    assert "spec.runtimeClass.scheduling.nodeSelector" in available.message
    members.append(Member(a_node("b"), wanted_shim(), None))
    actions = deciding(shim=PLACED, runtime_class=ours(PLACED), nodes=Tally(members).nodes())
    [available] = [item for item in written(actions).conditions if item.type == "Available"]
    assert "scheduling" not in available.message


def test_the_runtime_class_is_read_back_as_it_was_made() -> None:
    shim = replace(PLACED, overhead=(("memory", "16Mi"),))
    manifest = make_runtime_class(shim)
    manifest["metadata"] |= {"uid": "uid-rc", "resourceVersion": "3"}
    assert view_runtime_class(manifest) == ours(shim, overhead=(("memory", "16Mi"),), owner_name="spin")


def test_a_status_is_read_back_as_it_was_written() -> None:
    status = Status(Counts(4, 3, 2, 1), (Condition("Available", "True", "R", "m", NOW, 7),), 7)
    assert read_status({"status": make_status(status)}) == status
    assert read_status({}) == Status()


def test_sources_determine_the_target() -> None:
    assert wanted_shim().sources == (Source("https://example.com/spin", "amd64", "ab" * 32),)


def kept(number: int, content: str) -> Revision:
    return Revision(f"spin-{content}", f"uid-{content}", "3", number, {"fetchStrategy": {"type": content}})


def history(*revisions: Revision, content: str, shim: ShimView = SPIN) -> list[Action]:
    actions = deciding(a_node(), shim=shim, version={"fetchStrategy": {"type": content}}, revisions=revisions)
    return [action for action in actions if isinstance(action, (KeepRevision, DropRevision))]


def test_the_first_version_is_revision_1() -> None:
    [action] = history(content="a")
    assert isinstance(action, KeepRevision)
    assert (action.number, action.version, action.former) == (1, {"fetchStrategy": {"type": "a"}}, None)


def test_a_version_that_is_kept_as_the_newest_is_not_written_again() -> None:
    assert history(kept(1, "a"), kept(2, "b"), content="b") == []


def test_a_version_that_comes_back_gets_the_next_number() -> None:
    assert history(kept(1, "a"), kept(2, "b"), content="a") == [
        KeepRevision(SPIN, {"fetchStrategy": {"type": "a"}}, 3, kept(1, "a"))
    ]


def test_the_oldest_versions_go_when_there_are_more_than_the_limit() -> None:
    full = [kept(number, f"v{number}") for number in range(1, KEPT + 1)]
    assert [type(action) for action in history(*full[1:], content="new")] == [KeepRevision]
    assert history(*full, content="new")[1:] == [DropRevision(full[0])]
    assert not any(isinstance(action, DropRevision) for action in history(*full, content="v3"))


def test_a_spec_that_cannot_be_read_is_no_version() -> None:
    assert history(content="a", shim=replace(SPIN, invalid="spec: bad")) == []


RCM = Controller(Peer.RCM, "rcm", "rcm", "uid-rcm")
KWASM_OPERATOR = Controller(Peer.KWASM, "kwasm", "kwasm-operator", "uid-kwasm")
THEIRS = Status(
    Counts(nodes=7, ready=5),
    (Condition("Theirs", "True", "Because", "", "2026-01-01T00:00:00Z", 1),),
    observed_generation=3,
)


@pytest.mark.parametrize("changes", [{}, {"deleting": True}, {"finalizers": ()}], ids=["there", "deleted", "new"])
def test_while_runtime_class_manager_runs_nothing_but_that_is_written(changes: dict[str, Any]) -> None:
    shim = replace(SPIN, **changes)
    actions = deciding(a_node(), shim=shim, status=THEIRS, other=RCM, runtime_class=None, holders=(a_node(),))
    status = written(actions)
    assert [type(action) for action in actions] == [WriteStatus, RecordShimEvent]
    assert (status.counts, status.observed_generation) == (THEIRS.counts, THEIRS.observed_generation)
    assert status.conditions[0] == THEIRS.conditions[0]
    assert condition(actions, OTHER_CONTROLLER) == ("True", "RuntimeClassManagerRuns")
    message = status.conditions[1].message
    assert "Deployment rcm/rcm" in message
    assert "trellis migrate rcm --take-over" in message
    assert deciding(a_node(), shim=shim, status=status, other=RCM) == []


def test_while_the_operator_of_kwasm_runs_the_shim_is_accepted_and_its_nodes_wait() -> None:
    actions = deciding(a_node(), other=KWASM_OPERATOR)
    assert condition(actions, OTHER_CONTROLLER) == ("True", "KWasmOperatorRuns")
    assert condition(actions, "Progressing") == ("False", OTHER_CONTROLLER)
    others_go_on = deciding(a_node(), other=KWASM_OPERATOR, in_progress=(a_node(),))
    assert condition(others_go_on, "Progressing") == ("True", "Updating")


def test_once_the_other_controller_is_removed_the_shim_reports_since_when() -> None:
    before = written(deciding(a_node(), other=RCM, now="2026-01-31T11:00:00Z"))
    actions = deciding(a_node(), status=before)
    assert condition(actions, OTHER_CONTROLLER) == ("False", "NoOtherController")
    assert next(item for item in written(actions).conditions if item.type == OTHER_CONTROLLER).since == NOW


def test_without_another_controller_no_condition_is_written() -> None:
    assert OTHER_CONTROLLER not in {item.type for item in written(deciding(a_node())).conditions}


def test_a_mass_deletion_is_reported_on_the_shim_once() -> None:
    held = having("node-1", "old")
    changes = {"shim": DELETING, "holders": (held,), "paused_nodes": (held,)}
    actions = deciding(**changes)
    assert condition(actions, "Degraded") == ("True", "MassDeletion")
    assert [action.reason for action in actions if isinstance(action, RecordShimEvent)] == ["MassDeletion"]
    assert deciding(**changes, status=written(actions)) == []


def test_the_runtime_class_of_a_former_shim_of_the_same_name_is_taken_over() -> None:
    found = ours(owner="uid-of-the-former-one", owner_name="spin")
    assert deciding(a_node(), runtime_class=found)[0] == ApplyRuntimeClass(SPIN, found)
    another = ours(owner="uid-rival", owner_name="rival")
    assert condition(deciding(a_node(), runtime_class=another), "Degraded") == ("True", "RuntimeClassConflict")
