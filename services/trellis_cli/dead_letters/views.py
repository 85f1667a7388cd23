"""Views of dead letters: rows of a table, a page, JSON.

Pure: dead letters in, text and documents out. Called by ``trellis dead-letters``. Invariant: every dead letter can be
printed without terminal control characters; passwords in URLs are hidden except in the body, which is unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from trellis.bus.dead_letters.read import DeadLetter
from trellis.installer_api.redaction import redact_url
from trellis.read_model.reading.dead_letters import indented
from trellis_cli.common.output import make_table, one_line, printable

NONE: Final = "-"


def table_of(letters: Sequence[DeadLetter]) -> Table:
    """Return the table of these dead letters; long texts are folded on a narrow terminal, never truncated."""
    table = make_table(
        "SEQUENCE",
        "TIME",
        "SUBSCRIPTION",
        "REASON",
        "DELIVERIES",
        "SUBJECT",
        "ERROR",
        fold={"SUBSCRIPTION", "REASON", "SUBJECT", "ERROR"},
    )
    for dead_letter in letters:
        table.add_row(
            str(dead_letter.sequence),
            dead_letter.stored.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            Text(_shown(dead_letter.reader)),
            Text(_shown(dead_letter.reason), style="red"),
            _number(dead_letter.deliveries),
            Text(_shown(dead_letter.subject)),
            Text(_shown(dead_letter.error)),
        )
    return table


def footer(letters: Sequence[DeadLetter], looked_at: int) -> str:
    """Return the number of dead letters by reason, and the next commands."""
    if not letters:
        return f"no match in {_count(looked_at)}" if looked_at else "no dead letters"
    reasons = Counter(one_line(dead_letter.reason) or "unknown reason" for dead_letter in letters)
    tally = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"{_count(len(letters))} ({tally}); see `trellis dead-letters show SEQUENCE` and `… replay SEQUENCE`"


def page_of(dead_letter: DeadLetter) -> str:
    """Return all details of a dead letter, including its unchanged body; JSON is indented."""
    details = {
        "sequence": str(dead_letter.sequence),
        "time": dead_letter.stored.astimezone().isoformat(sep=" ", timespec="milliseconds"),
        "cluster": _shown(dead_letter.cluster),
        "subscription": _shown(dead_letter.reader),
        "reason": _shown(dead_letter.reason),
        "error": _shown(dead_letter.error),
        "deliveries": _number(dead_letter.deliveries),
        "subject": _shown(dead_letter.subject),
        "about": _shown("/".join((dead_letter.noun, *dead_letter.key))),
        "stored as": f"{_shown(dead_letter.stream)} {_number(dead_letter.original_sequence)}",
        "trace": dead_letter.trace_id or NONE,
        "replay": f"impossible: {_shown(dead_letter.obstacle)}"
        if dead_letter.obstacle
        else f"trellis dead-letters replay {dead_letter.sequence}",
    }
    lines = [f"{name:<13}{value}" for name, value in details.items()]
    lines.append("headers" if dead_letter.original_headers else "headers      -")
    lines += [f"  {one_line(name)}: {_shown(value)}" for name, value in (dead_letter.original_headers or {}).items()]
    cut = "" if dead_letter.truncated is None else f", CUT: the original had {dead_letter.truncated or 'more'}"
    return "\n".join((*lines, f"body ({dead_letter.size} bytes{cut})", "", _body_text(dead_letter.body)))


def _body_text(body: bytes) -> str:
    text = indented(body)
    return printable((body if text is None else text).decode(errors="backslashreplace"))


def _shown(text: str) -> str:
    return redact_url(one_line(text)) or NONE


def _number(value: int | None) -> str:
    return NONE if value is None else str(value)


def _count(letters: int) -> str:
    return "1 dead letter" if letters == 1 else f"{letters} dead letters"
