"""What one plan costs of a cluster in which one node is new: ``python bench/plan.py [--nodes N]``.

In: nothing; it plans in this process. Out: processor time of a plan, the least of several, with and without a limit in
percent, and while half of all nodes are in work, on stdout with the machine. Each change of a node is planned for the
whole cluster, several times.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import Final

from machine import describe
from provisioner.domain.plan import World, plan
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import KWASM
from trellis_dev.testing.builders import DIGEST, a_job, a_node, opted_in, proved

ROUNDS: Final = 9


def world(nodes: int, limit: CountOrPercent | None) -> World:
    """Return a world in which all nodes but one have what they are to have."""
    views = [proved(opted_in(a_node(f"node-{number:05}"))) for number in range(nodes - 1)]
    views.append(opted_in(a_node("new")))
    found = {one.uid: target_of(one, [], DIGEST, auto_provision=False, require_checksum=True) for one in views}
    targets = {uid: target for uid, target in found.items() if target is not None}
    return World(tuple(views), targets, {}, Ledger({}), {KWASM: ShimLimits(limit)}, Retries(10.0, 300.0), 10_000.0)


def at_work(nodes: int) -> World:
    """Return a world in which every second node has a Job that runs, one is new, and the others are done."""
    found = world(nodes, None)
    views = [opted_in(a_node(one.name)) if number % 2 else one for number, one in enumerate(found.nodes[:-1])]
    entries, jobs = {}, {}
    for one in views[1::2]:
        digest = found.targets[one.uid].digest
        entries[one.uid] = Entry(digest, 1, 9_990)
        jobs[one.uid] = (a_job(one, digest=digest),)
    return replace(found, nodes=(*views, found.nodes[-1]), ledger=Ledger(entries), jobs=jobs)


def least(of: World) -> float:
    """Return the seconds of a processor that a plan takes."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        outcome = plan(of)
        took.append(time.process_time() - began)
        assert [node.name for node in outcome.claimed] == ["new"]
    return min(took)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000, help="how many (default 5000)")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    for title, limit in (("no limit", None), ("a limit of 10 %", CountOrPercent.parse("10%"))):
        print(f"{options.nodes} nodes, one of them new, {title}: {least(world(options.nodes, limit)) * 1000:.1f} ms")
    print(f"{options.nodes} nodes, half of them in work: {least(at_work(options.nodes)) * 1000:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
