"""Reads untrusted JSON: a field of the wrong type raises an error that names it.

Pure. In: decoded JSON. Out: values of the expected type. Called by the readers of lattice messages. Source: CloudEvents
1.0 in JSON: ``time`` is optional, and data may be base64 in ``data_base64``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_FRACTION_DIGITS: Final = 9


class LatticeDataError(ValueError):
    """A message of a lattice that violates its protocol; the message of the error names the field."""


def decoded(payload: bytes) -> object:
    """Return the JSON value of a message.

    Raises:
        LatticeDataError: it is not JSON.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise LatticeDataError(f"not JSON: {error}") from None


def require_shallow(value: object, what: str) -> None:
    """Reject JSON that orjson can parse but not serialize: it parses up to 1,024 levels, and serializes up to 254.

    Raises:
        LatticeDataError: the value is nested deeper.
    """
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise LatticeDataError(f"{what} is nested too deeply: the limit is about 250 levels") from None


def read_event(payload: bytes) -> dict[str, Any]:
    """Return a CloudEvent, with an object as its ``data``.

    Raises:
        LatticeDataError: the message is not a CloudEvent.
    """
    event = decoded(payload)
    if isinstance(event, dict) and "data" not in event and isinstance(event.get("data_base64"), str):
        try:
            event["data"] = decoded(base64.b64decode(event["data_base64"], validate=True))
        except (binascii.Error, ValueError):
            raise LatticeDataError("`data_base64` is not base64-encoded JSON") from None
    if not isinstance(event, dict) or not isinstance(event.get("data"), dict):
        raise LatticeDataError("not a CloudEvent with `data`")
    return event


def host_data(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data of an event of a host, always with ``host_id``.

    Source: wasmCloud 1.9. A heartbeat contains the host ID; events of the start and stop of a host have it only as
    ``source`` of the event.
    """
    data: Mapping[str, Any] = event["data"]
    return data if "host_id" in data else {"host_id": event.get("source"), **data}


def event_time(event: Mapping[str, Any]) -> str:
    """Return the time of an event in UTC, in a fixed format that sorts by time; "" if it is invalid."""
    found_time = event.get("time")
    found = _TIME.fullmatch(found_time) if isinstance(found_time, str) else None
    if found is None:
        return ""
    whole, fraction, zone = found[1].upper(), found[2] or "", "+00:00" if found[3] in "Zz" else found[3]
    try:
        moment = datetime.fromisoformat(whole + zone).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return ""
    return f"{moment.isoformat()}.{fraction.ljust(_FRACTION_DIGITS, '0')[:_FRACTION_DIGITS]}Z"


def text(data: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    """Return a string, empty if it is missing or null.

    Raises:
        LatticeDataError: the value has another type, or is required and empty.
    """
    value = data.get(key)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise LatticeDataError(f"`{key}` is not a string")
    if required and not value:
        raise LatticeDataError(f"`{key}` is missing")
    return value


def number(data: Mapping[str, Any], key: str) -> int | None:
    """Return an integer, None if it is missing.

    Raises:
        LatticeDataError: the value has another type, or is less than 0.
    """
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise LatticeDataError(f"`{key}` is not an integer")
    return value


def texts(data: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return a map of strings, empty if it is missing or null.

    Raises:
        LatticeDataError: the value has another type.
    """
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise LatticeDataError(f"`{key}` is not a map of strings")
    return dict(value)
