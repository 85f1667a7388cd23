"""Whole numbers in texts from outside: marks on objects, headers, books that people can edit.

Pure. In: a text. Out: the number, or None. Called by whoever reads such a text. Invariant: nothing is ever raised:
``str.isdigit`` is true of "²", of which ``int`` makes no number, and ``int`` refuses texts of more than 4,300 digits.
"""

from __future__ import annotations

from typing import Final

MOST_DIGITS: Final = 20
"""Of an unsigned number of 64 bits, as Kubernetes' resourceVersions are."""


def whole(text: str | None) -> int | None:
    """Return the number that ASCII digits stand for, None where there is anything else, or more than 20 of them."""
    if not text or len(text) > MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)
