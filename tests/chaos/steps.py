"""The steps of a run of chaos, of users and of faults, each with its time, as plain data.

Pure. In: nothing. Out: ``Step`` and ``Schedule``. Invariant: a schedule has everything that a run does to the system,
so the expected end follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """An action ``at`` so many seconds after the start, on ``on``, that lasts ``seconds``.

    ``part``: ``faults``, or a part of the workload; ``value``: further input.
    """

    at: float
    part: str
    act: str
    on: str
    value: str = ""
    seconds: float = 0.0

    @property
    def until(self) -> float:
        """When it is over."""
        return self.at + self.seconds

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:6.2f} s  {self.part:<12} {self.act} {self.on}{f' {self.value}' if self.value else ''}{lasts}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """All steps of one run, in their order. ``servers``: of NATS, 1 or 3."""

    seed: int
    seconds: float
    servers: int
    steps: tuple[Step, ...]

    def of(self, *parts: str) -> Iterator[Step]:
        """Yield the steps of some parts."""
        return (step for step in self.steps if step.part in parts)
