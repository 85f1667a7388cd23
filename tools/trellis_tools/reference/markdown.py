"""Pieces of Markdown: escaped table cells, and tables.

Pure. In: text. Out: text. Called by the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

GENERATED: Final = "<!-- Written by `make generate`; do not edit. -->\n"


def cell(text: str) -> str:
    """Return a text as a table cell: one line, escaped."""
    return escaped(text.replace("``", "`")).replace("|", "\\|")


def escaped(text: str) -> str:
    """Return a text on one line, whose HTML tags and asterisks are shown; inside backticks they are text already."""
    parts = " ".join(text.split()).split("`")
    shown = (part if index % 2 else part.replace("<", "&lt;").replace("*", "\\*") for index, part in enumerate(parts))
    return "`".join(shown)


def code(text: str) -> str:
    """Return a text as code in a table cell; "" stays empty."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|") if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are already Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
