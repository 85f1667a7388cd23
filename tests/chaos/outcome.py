"""What came of a run. Pure. Made by ``check``; printed by ``run``, kept by ``record``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """``settled``: seconds from the end of the schedule until everything was as it has to be."""

    wrong: list[str] = field(default_factory=list)
    settled: float = 0.0
    writes: int = 0
    jobs: int = 0
    starts: int = 0
    repeated: int = 0

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong
