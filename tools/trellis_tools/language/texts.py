"""Writes extracted texts as Markdown for Vale, on the lines of their source.

In: texts with their first line. Out: one Markdown document per source file. Called by ``pages``.
Invariants: a text is on the line of its source, and all other lines are blank, so that line numbers of Vale are those
of the source; each text is a list item, so that texts on adjacent lines do not become one paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_PROSE: Final = re.compile(r"(?<![\w`./-])[A-Za-z]+,? [A-Za-z]+,? [A-Za-z]+(?![\w`/])")
_BETWEEN: Final = " / "
PLACEHOLDER: Final = "…"
"""Replaces the values in a text."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text, its first line (counted from 1), and its area: ``logs``, ``docstrings``.

    Each line break of the text is one of the source.
    """

    area: str
    line: int
    text: str


def is_prose(text: str) -> bool:
    """Return whether a string constant is prose: three plain words in a row."""
    return _PROSE.search(text) is not None


def one_line(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


def comment_blocks(lines: Iterable[tuple[str, str | None]], area: str) -> Iterator[Text]:
    """Yield comments: those on adjacent lines are one text, one after code is a separate text.

    ``lines``: each line before its comment, and the comment; None without one.
    """
    block: list[str] = []
    for number, (before, comment) in enumerate([*lines, ("", None)], start=1):
        if comment is not None and not before.strip():
            block.append(comment)
            continue
        if block:
            yield Text(area, number - len(block), "\n".join(block))
            block = []
        if comment is not None:
            yield Text(area, number, comment)


def document(texts: Iterable[Text]) -> str:
    """Return the Markdown document; texts on the same line are separated by a slash."""
    lines: dict[int, str] = {}
    for text in texts:
        for offset, content in enumerate(_safe(text.text).split("\n")):
            if not content.strip():
                continue
            number = text.line + offset
            if number in lines:
                lines[number] += _BETWEEN + content.strip()
            else:
                lines[number] = ("  " if offset else "- ") + content.rstrip()
    return "".join(f"{lines.get(number, '')}\n" for number in range(1, max(lines, default=0) + 1))


def _safe(text: str) -> str:
    """Return a text with escaped HTML."""
    return text.replace("<", "‹")
