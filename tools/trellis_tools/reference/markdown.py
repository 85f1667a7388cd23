"""Pieces of Markdown: cells that break no table, and tables.

Pure. In: text. Out: text. Called by the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

GENERATED: Final = "<!-- Written by `make generate`; do not edit. -->\n"


def cell(text: str) -> str:
    """Return a text as the cell of a table: one line, no bar of its own, and no tag that HTML would swallow."""
    plain = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
    parts = plain.split("`")
    # Inside of backticks HTML is text already.
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def code(text: str) -> str:
    """Return a text as code in the cell of a table; nothing stays nothing."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|") if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown already."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
