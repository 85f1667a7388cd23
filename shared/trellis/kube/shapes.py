"""Decodes only the required keys of objects, because decoding a complete Node of 8 kB is expensive.

In: a ``TypedDict`` of the required keys. Out: decoders of objects and of watch events. Called by ``reader``. Invariant:
a required key has the same value as in the complete object. An answer that does not fit is decoded completely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

import msgspec

Decode = Callable[[bytes | memoryview], Any]


class Shape:
    """The decoders of one kind. ``item``: a ``TypedDict`` with ``total=False`` that has ``metadata``."""

    def __init__(self, item: type) -> None:
        self.item: Final = _decoder(item)
        self.event: Final = decoder({"type": str, "object": item})


def decoder(keys: dict[str, Any]) -> Decode:
    """Return a decoder for keys of a JSON object.

    The decoder raises ``ValueError`` if a value has another type, or the JSON is malformed or nested too deeply.
    """
    return _decoder(TypedDict("Keys", keys, total=False))  # type: ignore[operator]


def _decoder(kind: type) -> Decode:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def decode(body: bytes | memoryview) -> Any:  # noqa: ANN401 - JSON
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(str(error)) from error

    return decode
