"""Decodes only the required keys of objects, because decoding a complete Node of 8 kB is expensive.

In: a ``TypedDict`` of the required keys. Out: decoders of lists and of watch events. Called by ``reader``. Invariant: a
required key has the same value as in the complete object. An answer that does not fit is decoded completely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

import msgspec

Decode = Callable[[bytes], Any]


class Shape:
    """The decoders of one kind. ``item``: a ``TypedDict`` with ``total=False`` that has ``metadata``."""

    def __init__(self, item: type) -> None:
        listing = {"apiVersion": str, "kind": str, "metadata": dict[str, Any], "items": list[item] | None}  # type: ignore[valid-type]
        self.listing: Final = _decoder(listing)
        self.event: Final = _decoder({"type": str, "object": item})


def _decoder(keys: dict[str, Any]) -> Decode:
    """Return a decoder for keys of a JSON object.

    The decoder raises ``ValueError`` if a value has another type, or the JSON is malformed or nested too deeply.
    """
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(TypedDict("Keys", keys, total=False))  # type: ignore[operator]

    def decode(body: bytes) -> Any:  # noqa: ANN401 - JSON
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(str(error)) from error

    return decode
