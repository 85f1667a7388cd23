"""CPU time of provisioner for a change of one node: ``python bench/plan.py [--nodes N]``.

In: nothing; it plans in this process. Out: processor time of a plan after the change, the least of several, with and
without a limit in percent, and while half of all nodes are in progress, and that of the counts of a Shim's status; each
beside that of an eighth of the nodes, on stdout with the machine. Each change of a node is planned for the whole
cluster, several times, and counted for each Shim.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from machine import describe
from provisioner.domain.fleet import Fleet
from provisioner.domain.plan import FleetSnapshot, plan
from provisioner.domain.shim_nodes import Member, member_of
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import JobView, NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_job, a_node, a_shim, opted_in, verified_node

ROUNDS: Final = 9
SPIN: Final = a_shim()


def target(node: NodeView, shims: tuple[ShimView, ...]) -> Target | None:
    """Return what a node is to have."""
    return target_of(node, shims, None, auto_provision=False, require_checksum=True)


def member(shim: ShimView, node: NodeView, shims: tuple[ShimView, ...]) -> Member | None:
    """Return a node among those of a Shim."""
    return member_of(shim, node, shims, auto_provision=False, require_checksum=True)


WANTED: Final = target(a_node(), (SPIN,)) or Target(())


def done(name: str) -> NodeView:
    """Return a node that has what it is to have."""
    return verified_node(opted_in(a_node(name, shims=encode_digests(dict(WANTED.shims)))), WANTED.digest, "handler")


@dataclass(frozen=True)
class Cluster:
    """Nodes of which one is new, and work in progress on some nodes."""

    fleet: Fleet
    limits: ShimLimits
    entries: dict[str, Entry]
    jobs: dict[str, tuple[JobView, ...]]

    @classmethod
    def of(cls, nodes: int, limit: CountOrPercent | None, *, at_work: bool = False) -> Cluster:
        """Return one in which every second node has a Job that runs, or none has; the rest is ready."""
        names = [f"node-{number:05}" for number in range(nodes - 1)]
        busy = set(names[1::2]) if at_work else set()
        views = {name: opted_in(a_node(name)) if name in busy else done(name) for name in names}
        views["new"] = opted_in(a_node("new"))
        working = [views[name] for name in sorted(busy)]
        return cls(
            Fleet(views, {SPIN.name: SPIN}, target, member),
            ShimLimits(limit),
            {node.uid: Entry(WANTED.digest, 1, 9_990, (SPIN.name,)) for node in working},
            {
                node.uid: (a_job(node, digest=WANTED.digest, installs=encode_digests(dict(WANTED.shims))),)
                for node in working
            },
        )

    def plan(self) -> None:
        """Plan after a change of the new node."""
        self.fleet.take("new")
        looked_at, resting = self.fleet.look_at({**self.jobs, **self.entries})
        world = FleetSnapshot(
            tuple(node for node, _ in looked_at),
            {node.uid: found for node, found in looked_at if found is not None},
            self.jobs,
            Ledger(self.entries),
            {SPIN.name: self.limits},
            Retries(10.0, 300.0),
            10_000.0,
            resting=resting,
        )
        assert [node.name for node in plan(world).claimed] == ["new"]

    def count(self) -> None:
        """Count the nodes of the Shim after a change of one."""
        self.fleet.take("node-00000")
        assert self.fleet.tally(SPIN).nodes().nodes


def least(act: Callable[[], None]) -> float:
    """Return the milliseconds of a processor that something takes, once it was done."""
    act()
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        act()
        took.append(time.process_time() - began)
    return min(took) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000, help="how many (default 5000)")
    options = parser.parse_args()
    sizes, tenth = (options.nodes // 8, options.nodes), CountOrPercent.parse("10%")
    print(f"machine: {describe()}", flush=True)
    for title, limit, at_work in (
        ("one of them new, no limit", None, False),
        ("one of them new, a limit of 10 %", tenth, False),
        ("one of them new, half of the rest in progress", None, True),
    ):
        small, large = (least(Cluster.of(size, limit, at_work=at_work).plan) for size in sizes)
        print(f"a plan of {options.nodes} nodes, {title}: {large:.2f} ms; of {sizes[0]}: {small:.2f} ms")
    small, large = (least(Cluster.of(size, None).count) for size in sizes)
    print(f"the counts of a Shim with {options.nodes} nodes: {large:.2f} ms; with {sizes[0]}: {small:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
