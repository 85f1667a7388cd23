"""Reads what others sent: a field is what it should be, or the error names it.

Pure. In: decoded JSON. Out: values of the expected type. Called by what reads lattice messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


class LatticeDataError(ValueError):
    """A message of a lattice that is not what its protocol says; the text names the field."""


def decoded(payload: bytes) -> object:
    """Return the JSON value of a message.

    Raises:
        LatticeDataError: it is no JSON.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise LatticeDataError(f"no JSON: {error}") from None


def host_event_data(payload: bytes) -> Mapping[str, Any]:
    """Return the data of an event that a host sent, with ``host_id`` in any case.

    Source: wasmCloud 1.9. A heartbeat says which host it is of; of its start and its end a host tells only as the
    event's ``source`` whose they are.

    Raises:
        LatticeDataError: it is no CloudEvent with an object as data.
    """
    event = decoded(payload)
    data = event.get("data") if isinstance(event, dict) else None
    if not isinstance(event, dict) or not isinstance(data, dict):
        raise LatticeDataError("no CloudEvent with `data`")
    return data if "host_id" in data else {"host_id": event.get("source"), **data}


def text(data: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    """Return a string; one that is missing or null is empty.

    Raises:
        LatticeDataError: it is something else, or it is required and empty.
    """
    value = data.get(key)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise LatticeDataError(f"`{key}` is no string")
    if required and not value:
        raise LatticeDataError(f"`{key}` is missing")
    return value


def number(data: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number, None if there is none.

    Raises:
        LatticeDataError: it is something else, or less than 0.
    """
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise LatticeDataError(f"`{key}` is no whole number")
    return value


def texts(data: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return a map of strings; one that is missing or null is empty.

    Raises:
        LatticeDataError: it is something else.
    """
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise LatticeDataError(f"`{key}` is no map of strings")
    return dict(value)
