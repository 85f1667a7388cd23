"""JSON that is kept: in the memory that it takes.

Pure. In: a value. Out: bytes. Called by whoever holds something of each object or each controller.
"""

from __future__ import annotations

from typing import Any

import orjson


def compact(value: Any, option: int | None = None) -> bytes:  # noqa: ANN401 - JSON
    """Return the JSON of a value.

    What orjson returns stands in a buffer of 4 KiB at least, which stays as long as the bytes do: a copy does not.
    """
    return bytes(memoryview(orjson.dumps(value, option=option)))
