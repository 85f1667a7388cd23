"""A seed and a length become everything that one run does.

Pure. In: a seed, seconds, which parts of the workload. Out: a ``Schedule``. Called by ``run`` and by tests.
Invariants: the same arguments give the same schedule on every machine; each part draws from a generator of its own, so
that a part that is added or left out changes nothing of the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from chaos import controller_work, fault_plan, lattice_work, node_work, secret_work
from chaos.steps import Schedule, Step

WORK: Final[Mapping[str, Callable[[random.Random, float], Iterator[Step]]]] = {
    node_work.PART: node_work.work,
    lattice_work.PART: lattice_work.work,
    controller_work.PART: controller_work.work,
    secret_work.PART: secret_work.work,
}
"""The parts of the workload."""
_THREE_OF: Final = 3
"""One run of so many has three servers of NATS."""


def servers_of(seed: int) -> int:
    """Return how many servers NATS has in the runs of a seed."""
    return 3 if random.Random(f"{seed} servers").randrange(_THREE_OF) == 0 else 1


def make_schedule(
    seed: int,
    seconds: float,
    *,
    parts: Collection[str] = tuple(WORK),
    faults: Collection[str] = (),
    without: Collection[str] = (),
) -> Schedule:
    """Return what a run does.

    ``faults``: only these are left of what would go wrong, all if it is empty; ``without``: these are not.
    """
    servers = servers_of(seed)
    steps = list(fault_plan.faults(random.Random(f"{seed} faults"), seconds, servers))
    steps += list(fault_plan.rarer(random.Random(f"{seed} rarer faults"), seconds, servers, steps))
    steps = [step for step in steps if (not faults or step.act in faults) and step.act not in without]
    for part, work in WORK.items():
        if part in parts:
            steps += work(random.Random(f"{seed} {part}"), seconds)
    return Schedule(seed, seconds, servers, tuple(sorted(steps, key=lambda step: step.at)))
