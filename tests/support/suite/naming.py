"""The names that a message must contain in any wording.

In: a message for people. Out: which names, numbers, flags and commands are not in it. Called by tests.
"""

from __future__ import annotations

import re


def lacking(message: object, *names: str) -> list[str]:
    """Return the names that are not in a message as whole words."""
    text = str(message)
    return [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
