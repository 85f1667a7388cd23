"""Requests to a guest and its results, in the format of docs/controller-abi.md.

Pure: keys and objects in, requests out; results in, parsed results out. Called by ``lifecycle``, in threads of the
pool. Invariant: any answer of a guest is parsed to one of the three results, or to an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

WAIT_MAX: Final = 30 * 86400.0
"""Maximum delay in seconds that a guest can request."""
_LONGEST_ERROR: Final = 1024


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a call. ``error``: "" on success; ``again``: seconds until the requested next call.

    ``refused``: the API server refused a request of the call.
    """

    error: str = ""
    again: float | None = None
    refused: bool = False


def reconcile_request(key: Mapping[str, str], item: bytes | None, attempt: int, traceparent: str | None) -> bytes:
    """Return the request of ``reconcile``; ``item`` is the object's JSON, None if the object was deleted."""
    rest: dict[str, Any] = {"attempt": attempt} | ({"traceparent": traceparent} if traceparent else {})
    return b'{"key":%b,"object":%b,%b' % (orjson.dumps(key), item or b"null", orjson.dumps(rest)[1:])


def init_request(controller: tuple[str, str], config: bytes, data: tuple[Any, Any]) -> bytes:
    """Return the request of ``init``; ``config`` is JSON, ``data`` the data of ConfigMaps and Secrets, by name."""
    namespace, name = controller
    rest = {"configMaps": data[0], "secrets": data[1]}
    reference = orjson.dumps({"namespace": namespace, "name": name})
    return b'{"controller":%b,"config":%b,%b' % (reference, config, orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)[1:])


def migrate_request(init: bytes, sha256: str, state: bytes) -> bytes:
    """Return the request of ``migrate``: the request of ``init`` and the saved state of the previous version."""
    return b'%b,"from":{"sha256":%b,"state":%b}}' % (init[:-1], orjson.dumps(sha256), state)


def read_result(answer: bytes, requeue_ms: int | None = None) -> Result:
    """Return the parsed result; ``requeue_ms``: milliseconds that the guest requested by a separate call."""
    try:
        found = orjson.loads(answer) if answer else {}
    except orjson.JSONDecodeError as error:
        return Result(f"the result is not JSON in UTF-8: {str(error)[:100]}")
    if not isinstance(found, dict):
        return Result('the result needs to be an object: {}, {"requeueAfter": 30} or {"error": "…"}')
    if (error_text := found.get("error")) is not None:
        return Result(_first_line(error_text))
    waits = []
    if (requeue_after := found.get("requeueAfter")) is not None:
        if (
            isinstance(requeue_after, bool)
            or not isinstance(requeue_after, int | float)
            or not math.isfinite(requeue_after)
            or requeue_after < 0
        ):
            return Result("requeueAfter of the result needs a number of seconds")
        waits.append(float(requeue_after))
    if requeue_ms is not None:
        waits.append(max(0, requeue_ms) / 1000)
    return Result(again=min(*waits, WAIT_MAX) if waits else None)


def _first_line(found: object) -> str:
    text = found if isinstance(found, str) else orjson.dumps(found).decode()
    line = "".join(char if char.isprintable() else " " for char in text[:_LONGEST_ERROR]).strip()
    return line or "the controller returned an empty error"
