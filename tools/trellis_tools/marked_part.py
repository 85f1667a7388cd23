"""The generated part of a file that is otherwise written by hand.

Pure. In: the text of a file, the lines around the part. Out: the text with another part. Called by ``services`` and
``chart``. Invariant: text outside the marks is not changed.
"""

from __future__ import annotations


def with_part(text: str, name: str, marks: tuple[str, str], part: str) -> str:
    """Return a text whose part between two marks is replaced; ``name``: of the file, for errors.

    The first mark is a complete line.

    Raises:
        ValueError: the text lacks a mark.
    """
    begin, end = f"{marks[0]}\n", marks[1]
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{name}: has no generated part: {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{part}{end}{after}"
