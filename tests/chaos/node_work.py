"""Steps of users on nodes and Shims, and the expected end.

Pure. In: a random generator and a length; or steps. Out: steps; or what each node and Shim has to be at the end.
Called by ``schedule`` and ``model``. Invariants: a step is possible where it stands in its order; no more nodes lose
labels than the breaker lets through, as what the breaker holds is not an error and takes ten minutes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from chaos.drawing import UserProfile, after, draw
from chaos.steps import Step

PART: Final = "nodes"
NODES: Final = tuple(f"n{number}" for number in range(8))
SHIMS: Final = ("spin", "slight")
MOST_DESTRUCTIVE: Final = 4
"""Nodes that lose a label in a run, or in a minute of a long one: the breaker lets five through in a minute."""
_EVERY_SECONDS: Final = 1.2


class Act(StrEnum):
    """The action of a step. ``on`` is a node; for the Shims' own steps a Shim."""

    OPT_IN = "opt-in"
    OPT_OUT = "opt-out"
    SELECT = "select"
    DESELECT = "deselect"
    REPLACE = "replace"
    APPLY = "apply-shim"
    DELETE = "delete-shim"
    FAIL_NEXT = "fail-next-installer-on"
    UNLABEL = "take-labels-of"
    DELETE_JOB = "delete-job-of"


DESTRUCTIVE: Final = frozenset({Act.OPT_OUT, Act.DESELECT, Act.FAIL_NEXT})
_WEIGHTS: Final = {
    Act.OPT_IN: 5,
    Act.OPT_OUT: 2,
    Act.SELECT: 6,
    Act.DESELECT: 2,
    Act.REPLACE: 2,
    Act.APPLY: 4,
    Act.DELETE: 1,
    Act.FAIL_NEXT: 2,
    Act.UNLABEL: 1,
    Act.DELETE_JOB: 2,
}
_PROFILE: Final = UserProfile(PART, _WEIGHTS, DESTRUCTIVE, MOST_DESTRUCTIVE, _EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The expected end of a node. ``shims``: versions by the names of the Shims that it has, and no others."""

    labelled: bool
    shims: dict[str, str]


@dataclass
class NodeModel:
    """The steps of users so far. ``shims``: the version of each Shim that there is."""

    annotated: set[str] = field(default_factory=set)
    selected: set[tuple[str, str]] = field(default_factory=set)
    shims: dict[str, str] = field(default_factory=dict)

    def do(self, step: Step) -> None:
        """Let a step have happened."""
        match Act(step.act):
            case Act.OPT_IN:
                self.annotated.add(step.on)
            case Act.OPT_OUT:
                self.annotated.discard(step.on)
            case Act.SELECT:
                self.selected.add((step.on, step.value))
            case Act.DESELECT:
                self.selected.discard((step.on, step.value))
            case Act.APPLY:
                self.shims[step.on] = step.value
            case Act.DELETE:
                del self.shims[step.on]
            case Act.REPLACE | Act.FAIL_NEXT | Act.UNLABEL | Act.DELETE_JOB:
                pass

    def end(self, node: str) -> NodeEnd:
        """Return what a node has to be now."""
        shims = {shim: version for shim, version in self.shims.items() if (node, shim) in self.selected}
        return NodeEnd(node in self.annotated or bool(shims), shims)

    def possible(self, act: str) -> list[tuple[str, str]]:
        """Return on what an act can be done now, with the value that it has then."""
        match Act(act):
            case Act.OPT_IN:
                return [(node, "") for node in NODES if node not in self.annotated]
            case Act.OPT_OUT:
                return [(node, "") for node in sorted(self.annotated)]
            case Act.SELECT:
                return [(node, shim) for node in NODES for shim in SHIMS if (node, shim) not in self.selected]
            case Act.DESELECT:
                return sorted(self.selected)
            case Act.APPLY:
                return [(shim, str(int(self.shims.get(shim, "0")) + 1)) for shim in SHIMS]
            case Act.DELETE:
                return [(shim, "") for shim in sorted(self.shims)]
            case Act.REPLACE | Act.FAIL_NEXT | Act.UNLABEL | Act.DELETE_JOB:
                return [(node, "") for node in NODES]


def work(rng: random.Random, seconds: float) -> Iterator[Step]:
    """Yield what people do in so many seconds."""
    return draw(rng, seconds, NodeModel(), _PROFILE)


def ended(steps: Iterable[Step]) -> NodeModel:
    """Return the model after all steps of this part."""
    return after(steps, NodeModel())
