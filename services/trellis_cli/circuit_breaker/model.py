"""The rows of the circuit-breaker commands: one for each service and kind.

Pure. In: records as read, the time. Out: rows with their JSON and their text. Called by ``command`` and
``status``. Invariant: every circuit breaker has a row; one with an unreadable record is never shown as closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis.limits.breaker import UNREADABLE, Closing, Limits, Opening, State, moment, settled

LIMITS: Final = Limits()


class Position(StrEnum):
    """State of a circuit breaker."""

    CLOSED = "Closed"
    OPEN = "Open"
    UNREADABLE = "Unreadable"


@dataclass(frozen=True, slots=True)
class BreakerRow:
    """One circuit breaker. ``closing`` is the last one by a user, of any age."""

    service: str
    kind: str
    position: Position
    opening: Opening | None = None
    closing: Closing | None = None

    @property
    def paused(self) -> int:
        """Number of paused deletions."""
        return len(self.opening.paused) if self.opening else 0

    @property
    def reason(self) -> str:
        """Reason why it is not closed, "" if it is."""
        if self.position is Position.UNREADABLE:
            return UNREADABLE
        return self.opening.reason if self.opening else ""

    @property
    def leave(self) -> str:
        """Deletions that a user currently permits: Everything, Paused or "" for none."""
        if self.closing is None:
            return ""
        if self.closing.everything:
            return "Everything"
        return "Paused" if self.closing.permitted else ""

    def advice(self) -> str:
        """Return the resolution if it is not closed."""
        close = f"trellis circuit-breaker close {self.service} {self.kind}"
        if self.position is Position.UNREADABLE:
            return f"the leader of {self.service} rewrites the record, deletions pause 10 min. To permit them: {close}"
        until = moment(self.opening.until if self.opening else 0)
        if not self.paused:
            return f"no deletion of {self.kind} is paused; new ones are until {until}. To permit them: {close}"
        names = self.opening.examples if self.opening else ()
        some = ", ".join(names[:3]) + (", …" if self.paused > len(names[:3]) else "")
        return (
            f"{self.paused} deletions of {self.kind} are paused ({some}). If they are intended: {close}. If not, "
            f"revert their cause; no object was deleted. At {until} as many deletions as the limit permits are done"
        )

    def document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        opening, closing = self.opening, self.closing
        return {
            "service": self.service,
            "kind": self.kind,
            "state": self.position.value,
            "since": moment(opening.since) if opening else None,
            "until": moment(opening.until) if opening else None,
            "paused": self.paused,
            "examples": list(opening.examples) if opening else [],
            "reason": self.reason or None,
            "closed": {"by": closing.by, "at": moment(closing.at)} if closing else None,
            "permitted": {"deletions": self.leave, "until": moment(closing.until)} if closing and self.leave else None,
        }


def rows_of(
    kinds: Mapping[str, Sequence[str]], records: Mapping[str, Mapping[str, State | None]], now: float
) -> list[BreakerRow]:
    """Return a row for each kind of each service (``node-watcher``), and for other entries of a record."""
    return [
        row_of(service, kind, record.get(kind, State()), now)
        for service, known in kinds.items()
        for record in [records.get(service, {})]
        for kind in (*known, *sorted(set(record) - set(known)))
    ]


def row_of(service: str, kind: str, state: State | None, now: float) -> BreakerRow:
    """Return one row; ``state`` None is an invalid record."""
    if state is None:
        return BreakerRow(service, kind, Position.UNREADABLE)
    state = settled(state, now, LIMITS)
    position = Position.OPEN if state.opening else Position.CLOSED
    return BreakerRow(service, kind, position, state.opening, state.closing)
