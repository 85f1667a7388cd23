"""Parses JSON of the API server in which one object may be nested too deeply, without losing the rest.

In: the body of an answer, or a line of a watch. Out: its content. Called by ``calls`` and ``reader``. Invariant: an
object that is nested too deeply keeps its metadata; the rest is cut, and still nested too deeply to be serialized
(``orjson`` writes 254 levels), so that no code can store the cut object as complete. Source: the API server accepts
10,000 levels where the schema preserves unknown fields, ``orjson`` reads 1,024.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any, Final

import orjson

MOST_LEVELS: Final = 500
"""Maximum nesting in an answer: deeper levels are cut. Lower than Python's recursion limit (1,000)."""
_TOO_DEEP: Final = "depth limit"
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_OPENING, _CLOSING = b"[{", b"]}"


async def parse(body: bytes, decode: Callable[[bytes], Any] | None = None) -> Any:  # noqa: ANN401 - JSON
    """Return parsed JSON; if it is nested too deeply, levels beyond ``MOST_LEVELS`` are null.

    ``decode`` decodes a part of it; if it raises ``ValueError``, everything is decoded.

    Raises:
        orjson.JSONDecodeError: the body is not JSON.
    """
    if decode is not None:
        with contextlib.suppress(ValueError):
            return decode(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if _TOO_DEEP not in error.msg:
            raise
    return orjson.loads(await asyncio.to_thread(cut, body))


def cut(body: bytes) -> bytes:
    """Return JSON with null in place of each object and array that is nested deeper than ``MOST_LEVELS``."""
    parts, level, begin, kept = [], 0, 0, 0
    for token in _TOKENS.finditer(body):
        first = body[token.start()]
        if first in _OPENING:
            level += 1
            if level == MOST_LEVELS + 1:
                begin = token.start()
        elif first in _CLOSING:
            if level == MOST_LEVELS + 1:
                parts += [body[kept:begin], b"null"]
                kept = token.end()
            level -= 1
    return b"".join([*parts, body[kept:]])
