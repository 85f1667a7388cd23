"""One row of ``trellis status``. Pure; used by the modules that make rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """One row. ``problem``: what is wrong and what to do, "" if nothing is; ``facts``: the part's own JSON fields."""

    name: str
    text: str
    problem: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the part for JSON: ``ok``, ``problem`` and its own fields."""
        return {"ok": not self.problem, "problem": self.problem or None} | self.facts
