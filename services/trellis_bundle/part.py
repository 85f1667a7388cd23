"""One row of ``trellis status``. Pure; used by the modules that make rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_NAMED: Final = 5


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


@dataclass(frozen=True, slots=True)
class Led:
    """The service that sees to what a row counts. ``leader``: "" if nobody; ``otherwise``: what then is."""

    service: str
    leader: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class Unwell:
    """Those of what a row counts that are not well. ``what``: they are; ``see``: the command that says more of them."""

    what: str
    keys: Sequence[str]
    see: str


def led_part(name: str, text: str, led: Led, unwell: Unwell, facts: dict[str, Any]) -> Part:
    """Return the row of what a led service sees to: a problem are those not well, and that nobody leads it.

    ``text`` is "" where there is nothing that it would have to see to; ``facts`` get its ``holder``.
    """
    problems = []
    if text and not led.leader:
        problems.append(f"nobody leads {led.service}, so {led.otherwise}: start it with `trellis run {led.service}`")
    if keys := unwell.keys:
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        problems.append(f"{unwell.what}: {', '.join(keys[:_NAMED])}{more}: see `{unwell.see}`")
    by = f"; {led.service} led by {led.leader}" if led.leader else ""
    return Part(name, (text or "none") + by, "; ".join(problems), facts | {"holder": led.leader or None})
