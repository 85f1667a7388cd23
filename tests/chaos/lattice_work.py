"""Steps of users on applications, with kubectl and with wash, and on host groups; and the expected end.

Pure. In: a random generator and a length; or steps. Out: steps; or what there has to be at the end. Called by
``schedule`` and ``model``. Invariants: each application belongs to one side for the whole run, so that no change of one
side overrides the other's; no more of them cease to run than breakers let through.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from chaos.drawing import UserProfile, after, draw
from chaos.steps import Step

PART: Final = "lattice"
KUBECTL_S: Final = ("k0", "k1", "k2")
WASH_S: Final = ("w0", "w1")
GROUPS: Final = ("g0", "g1")
MOST_DESTRUCTIVE: Final = 3
_EVERY_SECONDS: Final = 1.5
_REPLICAS_MAX: Final = 4


class Act(StrEnum):
    """The action of a step. ``on`` is an application, or a group; ``value`` a version, or how many hosts."""

    APPLY = "apply"
    MARK = "mark-undeployed"
    UNMARK = "unmark"
    DELETE = "delete"
    PUT = "wash-put"
    UNDEPLOY = "wash-undeploy"
    WASH_DELETE = "wash-delete"
    SCALE = "scale-group"
    DELETE_GROUP = "delete-group"


DESTRUCTIVE: Final = frozenset({Act.MARK, Act.DELETE, Act.UNDEPLOY, Act.WASH_DELETE})
_WEIGHTS: Final = {
    Act.APPLY: 5,
    Act.MARK: 1,
    Act.UNMARK: 3,
    Act.DELETE: 1,
    Act.PUT: 4,
    Act.UNDEPLOY: 1,
    Act.WASH_DELETE: 1,
    Act.SCALE: 3,
    Act.DELETE_GROUP: 1,
}
_PROFILE: Final = UserProfile(PART, _WEIGHTS, DESTRUCTIVE, MOST_DESTRUCTIVE, _EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class App:
    """An application: which version of it people asked for, and whether it is to run."""

    version: str
    runs: bool = True


@dataclass
class LatticeModel:
    """The steps of users so far. ``groups``: how many hosts each is to have."""

    apps: dict[str, App] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    _versions: int = 0

    def do(self, step: Step) -> None:
        """Let a step have happened."""
        app = self.apps.get(step.on, App(""))
        match Act(step.act):
            case Act.APPLY:
                self.apps[step.on] = App(step.value, app.runs)
            case Act.PUT:
                self.apps[step.on] = App(step.value)
            case Act.MARK | Act.UNDEPLOY:
                self.apps[step.on] = App(app.version, runs=False)
            case Act.UNMARK:
                self.apps[step.on] = App(app.version)
            case Act.DELETE | Act.WASH_DELETE:
                del self.apps[step.on]
            case Act.SCALE:
                self.groups[step.on] = int(step.value)
            case Act.DELETE_GROUP:
                del self.groups[step.on]
        self._versions += 1

    def possible(self, act: str) -> list[tuple[str, str]]:
        """Return on what an act can be done now, with the value that it has then."""
        runs = {name for name, app in self.apps.items() if app.runs}
        match Act(act):
            case Act.APPLY:
                return [(name, str(self._versions)) for name in KUBECTL_S]
            case Act.PUT:
                return [(name, str(self._versions)) for name in WASH_S]
            case Act.MARK:
                return [(name, "") for name in KUBECTL_S if name in runs]
            case Act.UNMARK:
                return [(name, "") for name in KUBECTL_S if name in self.apps.keys() - runs]
            case Act.UNDEPLOY:
                return [(name, "") for name in WASH_S if name in runs]
            case Act.DELETE:
                return [(name, "") for name in KUBECTL_S if name in self.apps]
            case Act.WASH_DELETE:
                return [(name, "") for name in WASH_S if name in self.apps]
            case Act.SCALE:
                return [(name, str(1 + self._versions % _REPLICAS_MAX)) for name in GROUPS]
            case Act.DELETE_GROUP:
                return [(name, "") for name in GROUPS if name in self.groups]


def work(rng: random.Random, seconds: float) -> Iterator[Step]:
    """Yield what people do in so many seconds."""
    return draw(rng, seconds, LatticeModel(), _PROFILE)


def ended(steps: Iterable[Step]) -> LatticeModel:
    """Return the model after all steps of this part."""
    return after(steps, LatticeModel())
