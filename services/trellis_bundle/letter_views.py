"""How dead letters look: rows of a table, a page, JSON.

Pure: letters in, text and documents out. Called by ``trellis dead``. Invariant: whatever a letter holds can be printed
and cannot steer the terminal; no password in a URL is shown but in the body, which is shown as it came.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import orjson
from rich.table import Table
from rich.text import Text

from trellis.bus.letters import DeadLetter
from trellis.redaction import redact_url
from trellis_bundle.output import one_line, printable

NONE: Final = "-"


def table_of(letters: Sequence[DeadLetter]) -> Table:
    """Return the table of these letters; nothing is cut, long texts are folded where the terminal is narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("SEQUENCE", "WHEN", "READER", "REASON", "DELIVERIES", "SUBJECT", "ERROR"):
        table.add_column(heading, no_wrap=heading in {"SEQUENCE", "WHEN", "DELIVERIES"}, overflow="fold")
    for letter in letters:
        table.add_row(
            str(letter.sequence),
            letter.stored.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            Text(_shown(letter.reader)),
            Text(_shown(letter.reason), style="red"),
            _number(letter.deliveries),
            Text(_shown(letter.subject)),
            Text(_shown(letter.error)),
        )
    return table


def footer(letters: Sequence[DeadLetter], looked_at: int) -> str:
    """Return how many letters there are by reason, and what to do with them."""
    if not letters:
        return f"none of {_count(looked_at)} is meant" if looked_at else "no dead letters"
    reasons = Counter(one_line(letter.reason) or "without a reason" for letter in letters)
    tally = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return (
        f"{_count(len(letters))} ({tally}); `trellis dead show SEQUENCE` shows one, `trellis dead replay` sends again"
    )


def page_of(letter: DeadLetter) -> str:
    """Return everything about a letter, its body included as it came; JSON is indented."""
    facts = {
        "sequence": str(letter.sequence),
        "when": letter.stored.astimezone().isoformat(sep=" ", timespec="milliseconds"),
        "cluster": _shown(letter.cluster),
        "reader": _shown(letter.reader),
        "reason": _shown(letter.reason),
        "error": _shown(letter.error),
        "deliveries": _number(letter.deliveries),
        "subject": _shown(letter.subject),
        "about": _shown("/".join((letter.noun, *letter.key))),
        "stored as": f"{_shown(letter.stream)} {_number(letter.original_sequence)}",
        "trace": letter.trace_id or NONE,
        "replay": f"impossible: {_shown(letter.obstacle)}"
        if letter.obstacle
        else f"trellis dead replay {letter.sequence}",
    }
    lines = [f"{name:<11}{value}" for name, value in facts.items()]
    lines.append("headers" if letter.original_headers else "headers    -")
    lines += [f"  {one_line(name)}: {_shown(value)}" for name, value in (letter.original_headers or {}).items()]
    cut = "" if letter.truncated is None else f", CUT: the original had {letter.truncated or 'more'}"
    return "\n".join((*lines, f"body ({letter.size} bytes{cut})", "", _body_text(letter.body)))


def document(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as JSON, without its body."""
    return {
        "sequence": letter.sequence,
        "time": letter.stored.isoformat(),
        "cluster": _safe(letter.cluster),
        "service": _safe(letter.service),
        "subscription": _safe(letter.subscription),
        "noun": _safe(letter.noun),
        "key": [_safe(name) for name in letter.key],
        "reason": _safe(letter.reason),
        "error": _safe(letter.error),
        "deliveries": letter.deliveries,
        "subject": _safe(letter.subject),
        "stream": _safe(letter.stream),
        "original_sequence": letter.original_sequence,
        "trace_id": letter.trace_id,
        "size": letter.size,
        "truncated": letter.truncated is not None,
        "obstacle": _safe(letter.obstacle),
    }


def full_document(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as JSON with the original's headers and the body: as JSON, else as text, else in Base64."""
    headers = letter.original_headers
    found = document(letter) | {
        "original_size": letter.size if letter.truncated is None else letter.truncated,
        "headers": None if headers is None else {_safe(name): _safe(value) for name, value in headers.items()},
    }
    if (indented := _indented(letter.body)) is not None:
        return found | {"body": orjson.loads(indented)}
    try:
        return found | {"body_text": letter.body.decode()}
    except UnicodeDecodeError:
        return found | {"body_base64": base64.b64encode(letter.body).decode()}


def _body_text(body: bytes) -> str:
    indented = _indented(body)
    return printable((body if indented is None else indented).decode(errors="backslashreplace"))


def _indented(body: bytes) -> bytes | None:
    """Return JSON with indentation, None if it is none; nested too deeply for that, it is text."""
    try:
        return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None


def _shown(text: str) -> str:
    return redact_url(one_line(text)) or NONE


def _safe(text: str) -> str:
    # A lone surrogate, as an escaped name may hold, cannot be written as JSON.
    return redact_url(text.encode(errors="backslashreplace").decode())


def _number(value: int | None) -> str:
    return NONE if value is None else str(value)


def _count(letters: int) -> str:
    return "1 dead letter" if letters == 1 else f"{letters} dead letters"
