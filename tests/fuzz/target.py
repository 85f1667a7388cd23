"""One parser under fuzzing: how its cases are drawn, and what would be a wrong answer to one.

In: a name and a number. Out: the outcome of that case, or the exception that says what was wrong. Called by ``run``
and by the unit tests, which let hypothesis draw in the generator's place. Invariant: a case depends on nothing but its
target's name and its number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fuzz.limits import bounded

C = TypeVar("C")
_SHOWN = 3_000


@dataclass(frozen=True, slots=True)
class Target(Generic[C]):
    """A parser that meets the outside.

    ``reads`` and ``oracle`` are for people: what is parsed, and what is a wrong answer. ``make`` draws a case from a
    generator and from nothing else; ``judge`` returns its outcome in few words, and raises on an error. ``must``:
    outcomes that a thousand cases have, else the generator makes noise. ``share``: of all cases that are run.
    ``mebibytes``: by which the process may grow for one case; ``seconds`` of processor for one.
    """

    name: str
    reads: str
    oracle: str
    make: Callable[[random.Random], C]
    judge: Callable[[C], str]
    must: frozenset[str] = frozenset({"accepted"})
    share: int = 10
    mebibytes: int = 64
    seconds: float = 2.0

    def case(self, number: int) -> C:
        """Return the case of a number."""
        return self.make(random.Random(f"{self.name}/{number}"))

    def verdict(self, number: int) -> str:
        """Return the outcome of a case, within its limits; raises what is wrong."""
        case = self.case(number)
        try:
            with bounded(self.seconds, self.mebibytes):
                return self.judge(case)
        except BaseException as error:
            error.add_note(f"{self.name} {number}: {shown(case)}")
            raise


def shown(case: object) -> str:
    """Return a case for people, cut."""
    text = repr(case)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def tried(call: Callable[[], Any], *refusals: type[BaseException]) -> tuple[str, Any]:
    """Return ``accepted`` and what a parser returned, or the name of its refusal and that; raises anything else."""
    try:
        return "accepted", call()
    except refusals as error:
        return type(error).__name__, error


def jsonable(raw: bytes | str) -> Any:
    """Return what the standard library reads in a JSON text, None if nothing: a second opinion."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
