"""What a pod's status says about its installer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from provisioner.gather import world_of
from provisioner.known import Known
from provisioner.pods import users_of
from provisioner.settings import Settings
from support.nodes.shown import show_nodes
from trellis import names
from trellis.provisioning.installer_pods import InstallerState, installer_state
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.shim_marks import ShimMarks
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import KWASM, NodeView, Target, encode_digests
from trellis.telemetry import TraceContext
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_node, a_shim, proved


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


def test_what_a_node_is_to_have_is_worked_out_anew_only_when_something_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def counting(node: NodeView, *args: Any, **kwargs: Any) -> Target | None:
        asked.append(node.name)
        return target_of(node, *args, **kwargs)

    monkeypatch.setattr("provisioner.known.target_of", counting)
    nodes, shims = {"a": a_node("a"), "b": a_node("b")}, {"spin": a_shim()}
    known = Known(FakeKube(), Settings(), nodes, shims)
    first = [known.target(node) for node in nodes.values()]
    assert [known.target(node) for node in nodes.values()] == first
    assert sorted(asked) == ["a", "b"]
    show_nodes(known, [a_node("a", labels=(("zone", "1"),)), nodes["b"]])
    known.target(nodes["a"])
    assert sorted(asked) == ["a", "a", "b", "b"]
    shims["spin"] = a_shim(selector=(("zone", "1"),))
    assert [known.target(node) is None for node in nodes.values()] == [False, True]
    shims.clear()
    assert known.target(nodes["a"]) is None


def of_shims(**digests: str) -> NodeView:
    target = Target(tuple(sorted(digests.items())))
    labels = tuple((names.shim_label(name), names.SHIM_PROVISIONED) for name in digests)
    return replace(proved(a_node(), target.digest, "handler"), shims=encode_digests(digests), labels=labels)


async def test_a_node_is_not_begun_while_it_bears_the_label_of_a_shim_that_is_to_go() -> None:
    node = of_shims(spin="1")
    known = Known(FakeKube(), Settings(), {node.name: node}, {})
    known.ledger = Ledger({})
    assert (await world_of(known)).hands_off == {node.uid}
    show_nodes(known, [replace(node, labels=())])
    world = await world_of(known)
    assert world.hands_off == frozenset()
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
    made = Known(FakeKube(), Settings(), {}, {}, marks=ShimMarks(lambda: known))
    made.ledger = Ledger({"uid-node-1": Entry("d1", 1, 1000, shims)})
    assert made.undecidable() is undecidable


class AwayBus:
    connected = asyncio.Event()


def test_a_trace_begins_with_an_opting_in_and_ends_with_what_is_proved() -> None:
    known = Known(FakeKube(), Settings(), {}, {})
    plain = a_node(resource_version="5")
    node = replace(plain, opt_in="true", resource_version="6")

    def trace_of(cause: str) -> TraceContext:
        return TraceContext(f"00-{cause}-1-01")

    known.opted_in(plain, node, trace_of)
    assert known.traces[node.uid] == trace_of(f"{node.uid}/6")
    known.opted_in(node, replace(node, labels=(("a", "b"),)), trace_of)
    assert node.uid in known.traces
    done = proved(node)
    known.opted_in(node, done, trace_of)
    assert known.traces == {}, "what happens to it from now on is another trace"
    known.opted_in(None, done, trace_of)
    known.opted_in(None, replace(node, failure="x", marked_uid=node.uid), trace_of)
    assert known.traces == {}, "it was opted in before this process began"
