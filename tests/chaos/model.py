"""Derive the expected end of a run from its schedule alone.

Pure. In: a ``Schedule``. Out: ``Expected``. Called by ``check`` and by tests. Faults do not change it: the end follows
from the steps of users on each object, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaos import controller_work, fault_plan, lattice_work, node_work, secret_work
from chaos.fault_plan import Fault
from chaos.lattice_work import App
from chaos.node_work import NodeEnd
from chaos.steps import Schedule


@dataclass(frozen=True, slots=True)
class Expected:
    """``shims``: versions by name; ``garbage``: the number of unreadable messages, each a dead letter.

    ``groups``: how many hosts each has; ``copies``: what each object says that is mirrored.
    ``answers``: what is given of a Secret, by account and Secret; of others nothing.
    """

    nodes: Mapping[str, NodeEnd]
    shims: Mapping[str, str]
    garbage: int
    apps: Mapping[str, App]
    groups: Mapping[str, int]
    copies: Mapping[str, str]
    answers: Mapping[tuple[str, str], str]


def expected(schedule: Schedule) -> Expected:
    """Return what has to be there once everything that went wrong is over."""
    nodes = node_work.ended(schedule.of(node_work.PART))
    garbage = sum(step.act == Fault.GARBAGE for step in schedule.of(fault_plan.PART))
    lattice = lattice_work.ended(schedule.of(lattice_work.PART))
    return Expected(
        {name: nodes.end(name) for name in node_work.NODES},
        dict(nodes.shims),
        garbage,
        dict(lattice.apps),
        dict(lattice.groups),
        controller_work.ended(schedule.of(controller_work.PART)),
        secret_work.ended(schedule.of(secret_work.PART)).answers(),
    )
