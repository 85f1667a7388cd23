"""Replays dead letters one by one and reports the outcome of each.

In: which letters. Out: a report. Called by ``trellis dead-letters replay``. Invariant: a dead letter
that cannot be replayed does not stop the others; an unreachable bus ends the replay, with the outcomes so far.
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
    """Which letters: these sequences, or without any all that the filters want."""

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
    """What became of each letter; ``ended_by`` is what kept the rest from being tried, empty if nothing did."""

    dry_run: bool
    lines: list[ReplayLine] = field(default_factory=list)
    ended_by: str = ""

    @property
    def complete(self) -> bool:
        """Whether everything was replayed (or could be)."""
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
        """Return the sums in words."""
        done = Outcome.WOULD_REPLAY if self.dry_run else Outcome.REPLAYED
        verb = "would be replayed" if self.dry_run else "replayed"
        refused = self._count(Outcome.NOT_REPLAYED)
        parts = [f"{self._count(done)} {verb}"]
        if refused:
            parts.append(f"{refused} not replayed")
        return "; ".join(parts) if self.lines else "no dead letters to replay"

    def _count(self, outcome: Outcome) -> int:
        return sum(line.outcome is outcome for line in self.lines)


async def replay_letters(url: str, choice: Choice, credentials: Credentials | None = None) -> ReplayReport:
    """Replay the letters, oldest first or in the order they are named.

    Letters that come into being meanwhile are left alone: what fails again at once is not tried for ever.

    Raises:
        BusUnavailable: there is no NATS at the address.
    """
    report = ReplayReport(choice.dry_run)
    async with dead_letters(url, credentials=credentials) as box:
        try:
            async with aclosing(_chosen(box, choice)) as chosen:
                async for sequence, letter in chosen:
                    report.lines.append(await _line(box, sequence, letter, dry_run=choice.dry_run))
        except BusError as error:
            report.ended_by = describe_error(error)
    return report


async def _chosen(box: DeadLetters, choice: Choice) -> AsyncGenerator[tuple[int, DeadLetter | None], None]:
    for sequence in choice.sequences:
        yield sequence, await box.get(sequence)
    if not choice.sequences:
        async with aclosing(box.find(choice.filters, bodies=True)) as letters:
            async for letter in letters:
                yield letter.sequence, letter


async def _line(box: DeadLetters, sequence: int, letter: DeadLetter | None, *, dry_run: bool) -> ReplayLine:
    if letter is None:
        return ReplayLine(sequence, Outcome.NOT_REPLAYED, "not found; see `trellis dead-letters list`")
    if letter.obstacle:
        return ReplayLine(sequence, Outcome.NOT_REPLAYED, one_line(letter.obstacle), letter.subject)
    if dry_run:
        return ReplayLine(sequence, Outcome.WOULD_REPLAY, letter.subject, letter.subject)
    try:
        done = await box.replay(letter)
    except ReplayRefused as error:
        return ReplayLine(sequence, Outcome.NOT_REPLAYED, str(error), letter.subject)
    again = ", already stored" if done.again else ""
    return ReplayLine(
        sequence, Outcome.REPLAYED, f"{letter.subject} as {done.sequence} in {done.stream}{again}", letter.subject
    )
