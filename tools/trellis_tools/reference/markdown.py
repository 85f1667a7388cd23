"""Pieces of Markdown: escaped table cells, and tables.

Pure. In: text. Out: text. Called by the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

GENERATED: Final = "<!-- Written by `make generate`; do not edit. -->\n"


def cell(text: str) -> str:
    """Return a text as a table cell: one line, with escaped bars and HTML tags."""
    plain = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
    parts = plain.split("`")
    # Inside backticks HTML is already text.
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def code(text: str) -> str:
    """Return a text as code in a table cell; "" stays empty."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|") if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are already Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
