"""Replays dead letters one by one and reports the outcome of each.

In: a selection of dead letters. Out: a report. Called by ``trellis dead-letters replay``. Invariant: one failed replay
does not stop the replay of the rest; an unreachable bus ends it, with the outcomes so far.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trellis.bus.dead_letters.read import DeadLetter, Wanted
from trellis.bus.dead_letters.store import DeadLetters, ReplayRefused, dead_letters
from trellis.bus.errors import BusError
from trellis.config.nats_credentials import Credentials
from trellis_cli.common.errors import describe_error
from trellis_cli.common.output import one_line


class Outcome(StrEnum):
    """The outcome of a dead letter."""

    REPLAYED = "Replayed"
    WOULD_REPLAY = "WouldReplay"
    NOT_REPLAYED = "NotReplayed"


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected dead letters: these sequences, or without any all that match the filters."""

    sequences: tuple[int, ...]
    filters: Wanted
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ReplayLine:
    """The outcome of one dead letter, with a text."""

    sequence: int
    outcome: Outcome
    text: str
    subject: str = ""

    def document(self) -> dict[str, Any]:
        """Return the line as JSON."""
        return {
            "sequence": self.sequence,
            "outcome": self.outcome.value,
            "subject": one_line(self.subject),
            "message": self.text,
        }


@dataclass(slots=True)
class ReplayReport:
    """Outcome per dead letter; ``ended_by``: the error that ended the replay early, empty if there is none."""

    dry_run: bool
    lines: list[ReplayLine] = field(default_factory=list)
    ended_by: str = ""

    @property
    def complete(self) -> bool:
        """True if all dead letters were replayed (or can be)."""
        return not self.ended_by and not self._count(Outcome.NOT_REPLAYED)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "letters": [line.document() for line in self.lines],
            "replayed": self._count(Outcome.REPLAYED),
            "not_replayed": self._count(Outcome.NOT_REPLAYED),
            "dry_run": self.dry_run,
            "ended_by": self.ended_by,
        }

    def summary(self) -> str:
        """Return the totals as text."""
        done = Outcome.WOULD_REPLAY if self.dry_run else Outcome.REPLAYED
        verb = "would be replayed" if self.dry_run else "replayed"
        refused = self._count(Outcome.NOT_REPLAYED)
        parts = [f"{self._count(done)} {verb}"]
        if refused:
            parts.append(f"{refused} not replayed")
        return "; ".join(parts) if self.lines else "no dead letters to replay"

    def _count(self, outcome: Outcome) -> int:
        return sum(line.outcome is outcome for line in self.lines)


async def replay_dead_letters(url: str, choice: Choice, credentials: Credentials | None = None) -> ReplayReport:
    """Replay the dead letters, oldest first or in the given order.

    Dead letters that are created during the replay are not replayed, so that an immediate failure does not loop.

    Raises:
        BusUnavailable: there is no NATS at the address.
    """
    report = ReplayReport(choice.dry_run)
    async with dead_letters(url, credentials=credentials) as box:
        try:
            async with aclosing(_chosen(box, choice)) as chosen:
                async for sequence, dead_letter in chosen:
                    report.lines.append(await _line(box, sequence, dead_letter, dry_run=choice.dry_run))
        except BusError as error:
            report.ended_by = describe_error(error)
    return report


async def _chosen(box: DeadLetters, choice: Choice) -> AsyncGenerator[tuple[int, DeadLetter | None], None]:
    for sequence in choice.sequences:
        yield sequence, await box.get(sequence)
    if not choice.sequences:
        async with aclosing(box.find(choice.filters, bodies=True)) as letters:
            async for dead_letter in letters:
                yield dead_letter.sequence, dead_letter


async def _line(box: DeadLetters, sequence: int, dead_letter: DeadLetter | None, *, dry_run: bool) -> ReplayLine:
    if dead_letter is None:
        return ReplayLine(sequence, Outcome.NOT_REPLAYED, "not found; see `trellis dead-letters list`")
    if dead_letter.obstacle:
        return ReplayLine(sequence, Outcome.NOT_REPLAYED, one_line(dead_letter.obstacle), dead_letter.subject)
    if dry_run:
        return ReplayLine(sequence, Outcome.WOULD_REPLAY, dead_letter.subject, dead_letter.subject)
    try:
        done = await box.replay(dead_letter)
    except ReplayRefused as error:
        return ReplayLine(sequence, Outcome.NOT_REPLAYED, str(error), dead_letter.subject)
    again = ", already stored" if done.again else ""
    return ReplayLine(
        sequence,
        Outcome.REPLAYED,
        f"{dead_letter.subject} as {done.sequence} in {done.stream}{again}",
        dead_letter.subject,
    )
