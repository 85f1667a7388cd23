"""Steps of users on the objects that a controller in Wasm mirrors, and the expected copies.

Pure. In: a random generator and a length; or steps. Out: steps; or the data of each copy at the end. Called by
``schedule`` and ``model``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from chaos.steps import Step

PART: Final = "controllers"
OBJECTS: Final = ("a", "b", "c", "d", "e", "f")
_EVERY_SECONDS: Final = 1.5
_DELETES: Final = 0.25


class Act(StrEnum):
    """The action of a step. ``on`` is an object, ``value`` its new content."""

    SET = "set"
    DELETE = "delete-object"


def work(rng: random.Random, seconds: float) -> Iterator[Step]:
    """Yield what people do in so many seconds."""
    there: set[str] = set()
    at, number = 0.0, 0
    while round(at, 2) < seconds:
        on = rng.choice(OBJECTS)
        deletes = on in there and rng.random() < _DELETES
        number += 1
        yield Step(round(at, 2), PART, Act.DELETE if deletes else Act.SET, on, "" if deletes else str(number))
        there = there - {on} if deletes else there | {on}
        at += rng.expovariate(1 / _EVERY_SECONDS)


def ended(steps: Iterable[Step]) -> dict[str, str]:
    """Return what each object says after all steps of this part."""
    values: dict[str, str] = {}
    for step in steps:
        if step.act == Act.SET:
            values[step.on] = step.value
        else:
            values.pop(step.on, None)
    return values
