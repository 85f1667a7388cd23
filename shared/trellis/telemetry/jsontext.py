"""Serializes any value as JSON text, so that a log call never fails because of a field.

In: fields of a log event. Out: one line of JSON. Called by both renderers of logs. Invariant: always returns valid
JSON; values without a JSON form become text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import orjson


def to_json(value: object) -> str:
    """Return the value as JSON on one line."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # Integers over 64 bits, lone surrogates, keys that are not text: rare, so the slow conversion is sufficient.
        return json.dumps(_plain(value))


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return str(value)
