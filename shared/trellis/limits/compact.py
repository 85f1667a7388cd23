"""JSON for caches, without unused memory.

Pure. In: a value. Out: bytes. Called by caches with an entry per object or per controller.
"""

from __future__ import annotations

from typing import Any

import orjson


def compact(value: Any, option: int | None = None) -> bytes:  # noqa: ANN401 - JSON
    """Return the JSON of a value.

    orjson returns a buffer of at least 4 KiB, which lives as long as the bytes. This function returns a copy.
    """
    return bytes(memoryview(orjson.dumps(value, option=option)))
