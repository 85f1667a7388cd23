"""Extracts the comments of Rust and Go, which are the documentation of the libraries for controllers.

In: the source of a file. Out: its comments; those on adjacent lines are one text. Called by ``pages``. Directives, such
as ``//go:wasmexport``, are not comments. This is not a parser: ``//`` in a string counts after a blank only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trellis_tools.language.texts import Text, comment_blocks

_COMMENT: Final = re.compile(r"(?P<before>.*?)(?:(?<=\s)|^)//(?P<mark>[/!]?)(?: (?P<text>.*))?$")


def code_comments(source: str, area: str) -> Iterator[Text]:
    """Yield the comments of a source file."""
    yield from comment_blocks(map(_split, source.split("\n")), area)


def _split(line: str) -> tuple[str, str | None]:
    """Return a line before its comment, and the comment; None without one."""
    found = _COMMENT.match(line)
    return (line, None) if found is None else (found["before"], (found["text"] or "").strip())
