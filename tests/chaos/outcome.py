"""The outcome of a run. Pure. Made by ``check``; printed by ``run``, kept by ``record``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

OK: Final = "ok"


@dataclass
class Outcome:
    """``settled``: seconds from the end of the schedule until everything was as it has to be.

    ``undecided``: checks without a result, as the machine gave the replicas no processor time.
    """

    wrong: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    settled: float = 0.0
    writes: int = 0
    jobs: int = 0
    starts: int = 0
    repeated: int = 0

    @property
    def good(self) -> bool:
        """Return whether the run shows no error and was decided."""
        return not self.wrong and not self.undecided

    @property
    def verdict(self) -> str:
        """``ok``, or the first thing that is wrong or undecided."""
        return next(iter([*self.wrong, *(f"undecided: {item}" for item in self.undecided)]), OK)
