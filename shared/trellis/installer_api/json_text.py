"""JSON parser of the standard library, for code without ``orjson`` and for integers of any size.

In: untrusted text. Out: its value. Called by the installer and by the readers of its results. Invariant: only
``ValueError`` is raised; ``json.loads`` also raises ``RecursionError``, for about a thousand nested lists.
"""

from __future__ import annotations

import json
from typing import Any


class NestedTooDeepError(ValueError):
    """A JSON text with more levels than the parser supports."""


def read_json(text: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON. NestedTooDeepError: it has too many levels.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise NestedTooDeepError("it is nested too deep") from None
