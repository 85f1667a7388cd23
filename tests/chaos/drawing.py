"""People who do by chance what can be done where things stand, each time somebody does something.

Pure. In: a random generator, a model of what was asked for so far, how likely each act is. Out: steps. Called by the
parts of the workload. Invariant: a step is possible where it stands in its order, and no more of those that take
something away come within ``TAKEN_SECONDS`` than a breaker lets through.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from chaos.steps import Step

TAKEN_SECONDS: Final = 90.0
"""Longer than the minute a breaker counts for, as work waits."""


class Model(Protocol):
    """The steps of users so far."""

    def do(self, step: Step) -> None:
        """Let a step have happened."""

    def possible(self, act: str) -> list[tuple[str, str]]:
        """Return on what an act can be done now, with the value that it has then."""


AModel = TypeVar("AModel", bound=Model)


@dataclass(frozen=True, slots=True)
class Habits:
    """The habits of the users of a part.

    ``weights``: how likely each act is, in their order; ``takes``: those that take away, ``most_taken`` of them at a
    time; ``every_seconds``: the mean between two steps.
    """

    part: str
    weights: Mapping[str, int]
    takes: frozenset[str]
    most_taken: int
    every_seconds: float


def draw(rng: random.Random, seconds: float, model: Model, habits: Habits) -> Iterator[Step]:
    """Yield what people do in so many seconds; the model is where they begin, and has what they did."""
    at, taken = 0.0, list[float]()
    while round(at, 2) < seconds:
        allowed = sum(item > at - TAKEN_SECONDS for item in taken) < habits.most_taken
        able = [act for act in habits.weights if model.possible(act) and (allowed or act not in habits.takes)]
        act = rng.choices(able, [habits.weights[item] for item in able])[0]
        on, value = rng.choice(model.possible(act))
        if act in habits.takes:
            taken.append(at)
        step = Step(round(at, 2), habits.part, act, on, value)
        model.do(step)
        yield step
        at += rng.expovariate(1 / habits.every_seconds)


def after(steps: Iterable[Step], model: AModel) -> AModel:
    """Return the model after all of these steps."""
    for step in steps:
        model.do(step)
    return model
