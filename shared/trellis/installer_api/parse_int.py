"""Parses whole numbers in untrusted text: annotations, headers, ConfigMaps that users can edit.

Pure. In: a text. Out: the number, or None. Called by the readers of such texts. Invariant: nothing is ever raised:
``str.isdigit`` is true for "²", which ``int`` rejects, and ``int`` rejects texts of more than 4,300 digits.
"""

from __future__ import annotations

from typing import Final

MOST_DIGITS: Final = 20
"""Digits of an unsigned 64-bit number, as resourceVersions of Kubernetes are."""


def whole(text: str | None) -> int | None:
    """Return the number of a text of at most 20 ASCII digits, None for any other text."""
    if not text or len(text) > MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)
