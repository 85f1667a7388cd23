"""Visits every state that a small protocol can reach, breadth first.

In: the states it begins in, and what can happen in a state. Out: how many states there are, or the shortest history
that breaks a promise. Called by the model checks. Pure; a state is a value that is hashed and compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

S = TypeVar("S", bound=Hashable)

Steps = Callable[[S], Iterable[tuple[str, S]]]
"""All that can happen next: a sentence, and the state after it."""


HOPELESS: Final = "the goal cannot be reached any more"
"""What is said of a state from which no goal can be reached."""


class BrokenPromise(AssertionError):  # noqa: N818 - says what is the case
    """A promise does not hold in a state that can be reached; says by which steps."""

    def __init__(self, promise: str, history: list[str]) -> None:
        super().__init__("\n  ".join([promise, *history]))
        self.promise = promise
        self.history = history


@dataclass(frozen=True)
class Explored:
    """The size of the exploration: distinct states, steps between them, steps of the longest shortest history."""

    states: int
    steps: int
    depth: int

    def __str__(self) -> str:
        return f"{self.states} states, {self.steps} steps, {self.depth} deep"


@dataclass(frozen=True)
class Promises(Generic[S]):
    """The rules: nothing is ``broken`` in any state, and from each the ``goal`` can still be reached."""

    broken: Callable[[S], str | None]
    goal: Callable[[S], bool]


class Remembered:
    """A value that works out its hash once: states are looked up far more often than made."""

    def __hash__(self) -> int:
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = super().__hash__()
            object.__setattr__(self, "_hash", found)
        return found


def explore(first: S, steps: Steps[S], promises: Promises[S], *, most: int = 1_000_000) -> Explored:
    """Visit every state.

    Raises:
        BrokenPromise: with the shortest history that leads there; so does a state from which no goal can be reached.
        OverflowError: there are more than ``most`` states: the model is not small any more.
    """
    numbers = {first: 0}
    seen = _Seen([None], [0], [[]])
    goals: list[int] = []
    waiting, count = deque([(0, first)]), 0
    while waiting:
        number, state = waiting.popleft()
        if (promise := promises.broken(state)) is not None:
            raise BrokenPromise(promise, seen.history(number))
        if promises.goal(state):
            goals.append(number)
        for what, after in steps(state):
            count += 1
            found = numbers.setdefault(after, len(numbers))
            if found == len(seen.depths):
                if found == most:
                    raise OverflowError(f"more than {most} states")
                seen.add(number, what)
                waiting.append((found, after))
            seen.before[found].append(number)
    if (hopeless := seen.first_without(goals)) is not None:
        raise BrokenPromise(HOPELESS, seen.history(hopeless))
    return Explored(len(numbers), count, max(seen.depths))


@dataclass(frozen=True)
class _Seen:
    """The states by number, in the order they were found: how each was first reached, and from where it can be."""

    came_by: list[tuple[int, str] | None]
    depths: list[int]
    before: list[list[int]]

    def add(self, number: int, what: str) -> None:
        self.came_by.append((number, what))
        self.depths.append(self.depths[number] + 1)
        self.before.append([])

    def first_without(self, goals: list[int]) -> int | None:
        """The first state from which none of the goals can be reached."""
        waiting, found = list(goals), set(goals)
        while waiting:
            more = [state for state in self.before[waiting.pop()] if state not in found]
            found.update(more)
            waiting += more
        return next((number for number in range(len(self.depths)) if number not in found), None)

    def history(self, number: int) -> list[str]:
        lines: list[str] = []
        while (step := self.came_by[number]) is not None:
            number, what = step
            lines.append(what)
        return lines[::-1]
