"""Draw possible steps of users at random.

Pure. In: a random generator, a model of the steps so far, the weight of each action. Out: steps. Called by the parts of
the workload. Invariant: a step is possible where it stands in its order, and no more destructive ones come within
``DESTRUCTION_SECONDS`` than a breaker lets through.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from chaos.steps import Step

DESTRUCTION_SECONDS: Final = 90.0
"""Longer than the minute a breaker counts for, as work waits."""


class Model(Protocol):
    """The steps of users so far."""

    def do(self, step: Step) -> None:
        """Record a step."""

    def possible(self, act: str) -> list[tuple[str, str]]:
        """Return the objects that an action is possible on now, each with its value."""


AModel = TypeVar("AModel", bound=Model)


@dataclass(frozen=True, slots=True)
class UserProfile:
    """The behaviour of the users of a part.

    ``weights``: of each action, in their order; ``destructive``: those that remove, ``most_destructive`` of them at a
    time; ``every_seconds``: the mean between two steps.
    """

    part: str
    weights: Mapping[str, int]
    destructive: frozenset[str]
    most_destructive: int
    every_seconds: float


def draw(rng: random.Random, seconds: float, model: Model, profile: UserProfile) -> Iterator[Step]:
    """Yield steps of users in so many seconds; the model is their start, and is updated by each."""
    at, taken = 0.0, list[float]()
    while round(at, 2) < seconds:
        allowed = sum(item > at - DESTRUCTION_SECONDS for item in taken) < profile.most_destructive
        able = [act for act in profile.weights if model.possible(act) and (allowed or act not in profile.destructive)]
        act = rng.choices(able, [profile.weights[item] for item in able])[0]
        on, value = rng.choice(model.possible(act))
        if act in profile.destructive:
            taken.append(at)
        step = Step(round(at, 2), profile.part, act, on, value)
        model.do(step)
        yield step
        at += rng.expovariate(1 / profile.every_seconds)


def after(steps: Iterable[Step], model: AModel) -> AModel:
    """Return the model after all of these steps."""
    for step in steps:
        model.do(step)
    return model
