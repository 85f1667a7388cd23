"""JSON by the standard library, for what has to do without ``orjson`` or takes any number: one error for all faults.

In: a text from outside. Out: its value. Called by the installer and by who reads what it says. Invariant: only
``ValueError`` is raised: the library's own reader also raises ``RecursionError``, of some thousand nested lists.
"""

from __future__ import annotations

import json
from typing import Any


class NestedTooDeepError(ValueError):
    """A JSON text has more levels than the library's reader can follow."""


def read_json(text: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the value of a JSON text.

    Raises:
        ValueError: it is none; NestedTooDeepError, it has too many levels to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise NestedTooDeepError("it is nested too deep") from None
