"""A plan and pods: a node begins with a record of its pods, and the next one once they are as ready again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from provisioner.domain.plan import FleetSnapshot, Plan, plan
from provisioner.domain.pod_readiness import RolloutPod, Workloads
from provisioner.domain.slots import RECORD_BYTES
from trellis.crds.shim import WorkloadPolicy
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Ledger, make_ledger, read_ledger
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_node, verified_node

NOW = 10_000.0
ONE = ShimLimits(
    CountOrPercent.parse("1"),
    workloads=WorkloadPolicy.HALT,
    workload_timeout=300.0,
    runtime_class="spin",
    content="2",
)


def target(**digests: str) -> Target:
    return Target(tuple(sorted(digests.items())))


def having(name: str, **digests: str) -> NodeView:
    return replace(verified_node(a_node(name), target(**digests).digest, "handler"), shims=encode_digests(digests))


def pod(node: str, **changes: Any) -> RolloutPod:
    found = RolloutPod("shop", f"web-{node}", node, "Deployment", "web", created_at=500, ready=True, ready_since=600)
    return replace(found, **changes)


BROKEN: dict[str, Any] = {"ready": False, "broken": True, "reason": "ShimError"}


class Cluster:
    """Nodes with version 1 of Shim spin; ``step`` plans, as provisioner does, with a ledger that was read."""

    def __init__(self, *names: str, limits: ShimLimits = ONE) -> None:
        self.nodes = {name: having(name, spin="1") for name in names}
        self.pods: Sequence[RolloutPod] | None = [pod(name) for name in names]
        self.limits, self.now, self.ledger, self.version = limits, NOW, Ledger({}), "2"

    def step(self, seconds: float = 1.0) -> Plan:
        self.now += seconds
        wanted = target(spin=self.version)
        outcome = plan(
            FleetSnapshot(
                tuple(self.nodes.values()),
                {node.uid: wanted for node in self.nodes.values()},
                {},
                self.ledger,
                {"spin": replace(self.limits, content=self.version)},
                Retries(10.0, 300.0),
                self.now,
                workloads=Workloads(None if self.pods is None else {"spin": self.pods}, "forbidden"),
            )
        )
        self.ledger = read_ledger(make_ledger("ns", outcome.ledger, None))
        return outcome

    def end(self, name: str) -> None:
        """End the change of a node."""
        self.nodes[name] = having(name, spin=self.version)

    def change(self, name: str, **changes: Any) -> None:
        assert self.pods is not None
        self.pods = [replace(item, **changes) if item.node == name else item for item in self.pods]

    def in_progress(self) -> list[str]:
        return sorted(node.name for node in self.nodes.values() if node.uid in self.ledger.entries)


def test_the_next_node_begins_once_the_pods_of_the_former_are_as_ready() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.step()
    assert cluster.in_progress() == ["a"]
    assert cluster.ledger.workloads["spin"].baselines.keys() == {"uid-a"}
    cluster.end("a")
    cluster.change("a", ready=False)
    cluster.step()
    assert cluster.in_progress() == []
    assert cluster.step(60.0).wake_in is not None
    assert cluster.in_progress() == []
    cluster.change("a", ready=True, ready_since=int(cluster.now))
    cluster.step(9.0)
    assert cluster.in_progress() == []
    cluster.step(2.0)
    assert cluster.in_progress() == ["b"]
    assert cluster.ledger.workloads["spin"].baselines.keys() == {"uid-b"}


def test_nodes_without_ready_pods_follow_each_other_at_once() -> None:
    cluster = Cluster("a", "b")
    cluster.change("a", ready=False)
    cluster.step()
    assert cluster.ledger.workloads == {}
    cluster.end("a")
    cluster.step()
    assert cluster.in_progress() == ["b"]


def test_pods_are_ignored_by_request() -> None:
    cluster = Cluster("a", "b", limits=replace(ONE, workloads=WorkloadPolicy.IGNORE))
    cluster.step()
    cluster.end("a")
    cluster.change("a", **BROKEN)
    cluster.step()
    assert (cluster.in_progress(), cluster.ledger.workloads) == (["b"], {})


def broken_on_a() -> Cluster:
    """Return a cluster whose rollout is halted, because pods on node a fail with the version."""
    cluster = Cluster("a", "b", "c")
    cluster.step()
    cluster.end("a")
    cluster.step()
    cluster.change("a", **BROKEN)
    cluster.step(11.0)
    assert cluster.ledger.halted == ("spin",)
    return cluster


def test_a_rollout_that_breaks_pods_is_halted_and_no_further_node_begins() -> None:
    cluster = broken_on_a()
    halt = cluster.ledger.workloads["spin"].halt
    assert halt is not None
    assert (halt.pod, halt.node, halt.cause) == ("shop/web-a", "a", "ShimError")
    cluster.step(10_000.0)
    assert cluster.in_progress() == []


def test_undo_repairs_the_node_with_such_pods_and_then_the_rest() -> None:
    cluster = broken_on_a()
    cluster.nodes["b"] = having("b", spin="2")  # it ended earlier, and its pods were ready
    cluster.version = "1"
    cluster.step()
    assert (cluster.ledger.halted, cluster.in_progress()) == ((), ["a"])
    cluster.end("a")
    cluster.change("a", ready=True, ready_since=int(cluster.now), broken=False)
    cluster.step()
    assert cluster.in_progress() == []
    cluster.step(11.0)
    assert cluster.in_progress() == ["b"]


def test_resume_continues_with_the_pods_as_they_are() -> None:
    cluster = broken_on_a()
    halt = cluster.ledger.workloads["spin"].halt
    assert halt is not None
    cluster.limits = replace(ONE, acknowledged=halt.at)
    cluster.step()
    assert (cluster.ledger.halted, cluster.in_progress()) == ((), ["b"])


def test_a_repeated_attempt_keeps_the_first_record() -> None:
    cluster = Cluster("a", "b")
    works = pod("a", name="web-2")
    cluster.pods = [works, *(cluster.pods or ())]
    cluster.step()
    before = cluster.ledger.workloads["spin"].baselines["uid-a"]
    entry = cluster.ledger.entries["uid-a"]
    failure = f"{entry.digest}/1/{int(cluster.now)}"
    cluster.nodes["a"] = replace(cluster.nodes["a"], failed_attempt=failure, failure="x", marked_uid="uid-a")
    cluster.change("a", **BROKEN)
    cluster.pods = [works, *cluster.pods[1:]]
    cluster.step()
    assert cluster.in_progress() == []  # and b does not begin
    cluster.step(400.0)
    assert cluster.in_progress() == ["a"]
    assert cluster.ledger.workloads["spin"].baselines["uid-a"] == before


def test_no_node_with_the_shim_begins_while_its_pods_cannot_be_read() -> None:
    cluster = Cluster("a")
    cluster.pods = None
    cluster.nodes["new"] = a_node("new")
    cluster.step()
    assert cluster.in_progress() == []
    cluster.step(301.0)
    assert cluster.ledger.halted == ("spin",)
    cluster.pods = []
    cluster.step()
    assert cluster.in_progress() == ["a"]


def test_a_first_installation_needs_no_pods() -> None:
    cluster = Cluster()
    cluster.nodes["new"], cluster.pods = a_node("new"), None
    cluster.step()
    assert cluster.in_progress() == ["new"]


@pytest.mark.parametrize(("count", "begin"), [(3, 3), (1_000, 9)], ids=["few pods", "many pods"])
def test_records_take_bounded_space_and_further_nodes_wait(count: int, begin: int) -> None:
    """A node has at most some hundred pods; 1,000 owners show the limit with few nodes."""
    names = [f"node-{index:02}" for index in range(begin)]
    cluster = Cluster(*names, limits=replace(ONE, max_update=None))
    cluster.pods = [pod(name, owner_name=f"app-{index}") for name in names for index in range(count)]
    cluster.step()
    started = len(cluster.in_progress())
    assert started == (begin if count == 3 else RECORD_BYTES // (count * 21 + 100))
    assert len(make_ledger("ns", cluster.ledger, None)["data"].get("workloads", "")) <= RECORD_BYTES


def test_a_node_with_two_shims_waits_with_both_and_a_removal_does_not_wait() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.step()
    cluster.end("a")
    cluster.change("a", ready=False)
    cluster.step()
    both = target(slight="1", spin="2")
    nodes = (cluster.nodes["a"], having("b", spin="1"), having("c", old="1", spin="1"))
    outcome = plan(
        FleetSnapshot(
            nodes,
            {"uid-b": both, "uid-c": target(spin="2")},
            {},
            cluster.ledger,
            {"spin": ONE, "slight": ShimLimits(None)},
            Retries(10.0, 300.0),
            cluster.now + 20,
            workloads=Workloads({"spin": cluster.pods or ()}),
        )
    )
    assert {node.name: outcome.ledger.entries[node.uid].shims for node in outcome.claimed} == {"c": ("old",)}
