"""The report of a pod's status about its installer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.cache import Cache
from provisioner.domain.pod_readiness import Workloads
from provisioner.pods import users_of
from provisioner.rollout_gather import fleet_snapshot
from provisioner.settings import Settings
from support.nodes.shown import show_ledger, show_nodes
from trellis import names
from trellis.kube.informer import Change, ChangeKind
from trellis.provisioning.installer_pods import InstallerState, installer_state
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.reasons import Reason
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import KWASM, NodeView, Target, encode_digests
from trellis.telemetry import TraceContext
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_node, a_shim, verified_node


def pod(**state: Any) -> dict[str, Any]:
    return {"status": {"phase": "Pending", "containerStatuses": [{"name": "kwasm-provision", **state}]}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(
            pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image x"}}),
            InstallerState(waiting="ImagePullBackOff: Back-off pulling image x"),
            id="an image that cannot be pulled",
        ),
        pytest.param(
            pod(state={"waiting": {"reason": "ContainerCreating"}}), InstallerState(), id="starting is no trouble"
        ),
        pytest.param(
            pod(state={"terminated": {"exitCode": 3, "reason": "Error", "message": "cp: read-only file system"}}),
            InstallerState(terminated="exit code 3 (Error)", log_tail="cp: read-only file system"),
            id="the end of its log",
        ),
        pytest.param(
            pod(state={"running": {}}, lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            InstallerState(terminated="exit code 137 (OOMKilled)"),
            id="its former end while it runs again",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "reason": "Evicted", "message": "node was low on memory"}},
            InstallerState(terminated="Evicted: node was low on memory"),
            id="a pod that never had a container",
        ),
        pytest.param({}, InstallerState(), id="no status yet"),
    ],
)
def test_a_pods_status_in_words(status: dict[str, Any], expected: InstallerState) -> None:
    assert installer_state(status) == expected


SELECTED = {names.shim_label("spin"): names.SHIM_PROVISIONED}


@pytest.mark.parametrize(
    ("spec", "phase", "uses"),
    [
        pytest.param({"runtimeClassName": "spin-v2"}, "Running", True, id="its RuntimeClass"),
        pytest.param({"runtimeClassName": "spin-v2"}, "Succeeded", False, id="its RuntimeClass, and it ended"),
        pytest.param({"runtimeClassName": "other"}, "Running", False, id="another RuntimeClass"),
        pytest.param({"runtimeClassName": "gone", "nodeSelector": SELECTED}, "Running", True, id="the label"),
        pytest.param({"nodeSelector": SELECTED}, "Running", False, id="the label, and no RuntimeClass"),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["the Shim is there", "the Shim is gone"])
def test_a_pod_that_uses_what_is_to_go_is_known_by(
    spec: dict[str, Any], phase: str, *, uses: bool, known: bool
) -> None:
    shims = {"spin": a_shim(runtime_class="spin-v2")} if known else {}
    pods = [{"metadata": {"namespace": "apps", "name": "web", "uid": "u"}, "spec": spec, "status": {"phase": phase}}]
    expected = uses and (known or "nodeSelector" in spec)
    assert bool(users_of(pods, ("spin",), shims)) is expected


@pytest.mark.parametrize(
    ("pod", "deleting", "uses"),
    [
        pytest.param({"runtimeClassName": "wasm", "nodeSelector": {"one": "provisioned"}}, ("two",), [], id="of one"),
        pytest.param(
            {"runtimeClassName": "wasm", "nodeSelector": {"two": "provisioned"}}, ("two",), ["two"], id="of the other"
        ),
        pytest.param({"runtimeClassName": "wasm"}, ("two",), ["two"], id="unknown of which"),
        pytest.param({"runtimeClassName": "wasm", "nodeSelector": {"spin": "x"}}, ("spin",), [], id="on its nodes"),
    ],
)
def test_pods_are_not_evicted_for_another_shim(pod: dict[str, Any], deleting: tuple[str, ...], uses: list[str]) -> None:
    """Two Shims with one RuntimeClass, and one whose label is in a nodeSelector of a RuntimeClass."""
    shims = {"one": a_shim("one", runtime_class="wasm"), "two": a_shim("two", runtime_class="wasm"), "spin": a_shim()}
    pods = [{"metadata": {"namespace": "apps", "name": "web", "uid": "u"}, "spec": pod}]
    assert [user.shim for user in users_of(pods, deleting, shims)] == uses


def test_the_target_of_a_node_is_recomputed_only_after_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requested_paths: list[str] = []

    def counting(node: NodeView, *args: Any, **kwargs: Any) -> Target | None:
        requested_paths.append(node.name)
        return target_of(node, *args, **kwargs)

    monkeypatch.setattr("provisioner.cache.target_of", counting)
    nodes, shims = {"a": a_node("a"), "b": a_node("b")}, {"spin": a_shim()}
    cache = Cache(FakeKube(), Settings(), nodes, shims)
    first = [cache.fleet.target(node) for node in nodes.values()]
    assert [cache.fleet.target(node) for node in nodes.values()] == first
    assert sorted(requested_paths) == ["a", "b"]
    show_nodes(cache, [a_node("a", labels=(("zone", "1"),)), nodes["b"]])
    cache.fleet.target(nodes["a"])
    assert sorted(requested_paths) == ["a", "a", "b", "b"]
    shims["spin"] = a_shim(selector=(("zone", "1"),))
    assert [cache.fleet.target(node) is None for node in nodes.values()] == [False, True]
    shims.clear()
    assert cache.fleet.target(nodes["a"]) is None


def of_shims(**digests: str) -> NodeView:
    target = Target(tuple(sorted(digests.items())))
    labels = tuple((names.shim_label(name), names.SHIM_PROVISIONED) for name in digests)
    return replace(verified_node(a_node(), target.digest, "handler"), shims=encode_digests(digests), labels=labels)


async def test_a_node_is_not_started_while_it_has_the_label_of_a_shim_to_remove() -> None:
    node = of_shims(spin="1")
    kube = FakeKube()
    cache = Cache(kube, Settings(), {node.name: node}, {})
    show_ledger(cache, Ledger({}))
    assert fleet_snapshot(cache, kube.now(), Workloads()).other_controller == {node.uid}
    show_nodes(cache, [replace(node, labels=())])
    world = fleet_snapshot(cache, kube.now(), Workloads())
    assert world.other_controller == frozenset()
    assert world.targets[node.uid] == Target(())


@pytest.mark.parametrize(
    ("known", "shims", "undecidable"),
    [
        pytest.param(False, ("spin",), True, id="a slot for a Shim that cannot be listed"),
        pytest.param(False, (KWASM,), False, id="a slot for the legacy image"),
        pytest.param(True, ("spin",), False, id="Shims can be listed"),
    ],
)
def test_nothing_is_planned_while_a_slot_names_shims_that_cannot_be_listed(
    known: bool,
    shims: tuple[str, ...],
    undecidable: bool,
) -> None:
    made = Cache(FakeKube(), Settings(), {}, {}, shims_known=lambda: known)
    show_ledger(made, Ledger({"uid-node-1": Entry("d1", 1, 1000, shims)}))
    assert fleet_snapshot(made, FakeKube().now(), Workloads()).shims_unknown is undecidable


def test_a_trace_begins_with_the_opt_in_and_ends_with_the_verification() -> None:
    cache = Cache(FakeKube(), Settings(), {}, {})
    plain = a_node(resource_version="5")
    node = replace(plain, opt_in="true", resource_version="6")

    def trace_of(cause: str) -> TraceContext:
        return TraceContext(f"00-{cause}-1-01")

    def change(old: NodeView | None, new: NodeView) -> TraceContext | None:
        cache.node_changed(Change(ChangeKind.MODIFIED, new.name, old, new), trace_of)
        return cache.noted(new.uid).trace

    requested = trace_of(f"{node.uid}/6")
    assert change(plain, node) == requested
    assert change(node, replace(node, labels=(("a", "b"),))) == requested
    done = verified_node(node)
    assert change(node, done) is None, "what happens to it from now on is another trace"
    assert change(None, done) is None
    assert change(None, replace(node, failure="x", marked_uid=node.uid)) is None, "it was opted in before this process"


def test_an_opt_in_that_the_bus_repeats_starts_no_trace_of_a_verified_node() -> None:
    node, trace = a_node(opt_in="true"), TraceContext("00-1-1-01")
    for seen, recorded in ((None, trace), (node, trace), (verified_node(node), None)):
        cache = Cache(FakeKube(), Settings(), {} if seen is None else {node.name: seen}, {})
        cache.record_trace(node.name, node.uid, trace)
        assert cache.noted(node.uid).trace == recorded
    cache.record_trace(node.name, "the next Node of this name", trace)
    assert cache.noted("the next Node of this name").trace == trace


def test_nothing_is_recorded_of_a_deleted_or_replaced_node() -> None:
    cache, node = Cache(FakeKube(), Settings(), {}, {}), a_node()
    for after in (None, replace(node, uid="another")):
        cache.slot_given_back(node.uid, 600, "in use")
        cache.refusal_reported(node, Reason.INSTALLER_REFUSED, "no")
        assert (cache.blocked_nodes(), cache.in_use()) == ({node.uid}, {node.uid: "in use"})
        cache.node_changed(Change(ChangeKind.MODIFIED, node.name, node, after), lambda _: TraceContext("x"))
        assert (cache.blocked_nodes(), cache.in_use(), cache.refused.by_uid) == (frozenset(), {}, {})


def test_the_end_of_a_refusal_starts_the_nodes_waiting_for_it() -> None:
    cache, nodes = Cache(FakeKube(), Settings(), {}, {}), [a_node("a"), a_node("b")]
    for node in nodes:
        cache.refusal_reported(node, Reason.INSTALLER_REFUSED, "no")
        cache.slot_given_back(node.uid, 600, "")
    assert cache.refusal_ended(nodes[0].uid)
    assert nodes[1].uid not in cache.blocked_nodes()
    assert not cache.refusal_ended(nodes[0].uid)


WRITER = re.compile(
    r"cache\.(?:\w+ (?:[|&+-]?=) |\w+\[.*\] = |(?:nodes|shims|canaries)\.(?:pop|update|clear|setdefault)\("
    r"|(?:jobs|fleet|shim_references|clock|refused|pod_refusals)\.(?:change|refresh|take|take_node|take_job|end)\b)"
)
"""What changes the cache from outside."""


def test_nothing_but_the_cache_changes_what_it_holds() -> None:
    import provisioner  # noqa: PLC0415

    [folder] = provisioner.__path__
    for file in Path(folder).rglob("*.py"):
        found = WRITER.findall(file.read_text())
        assert found == [], file
    assert WRITER.search("self.cache.ledger = None")
    assert WRITER.search("self.cache.jobs.change(old, new)")
    assert not WRITER.search("if cache.ledger == None:")
