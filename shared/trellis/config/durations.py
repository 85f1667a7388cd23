"""Parses and formats durations.

Pure. In: ``30``, ``30s``, ``5m``, ``1h30m``, ``500ms``, ``1d`` or a number. Out: seconds as a float.
Called through the type :data:`Seconds` by settings and models. Invariant: the result is finite and not negative.
Source: the format of Go's ``time.ParseDuration``, as in Kubernetes, plus days and bare seconds.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Final

from pydantic import BeforeValidator

from trellis.config.value_schema import number_schema

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NEEDS: Final = "needs a duration, e.g. 30s, 5m or 1h30m"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"(?P<amount>{_NUMBER})(?P<unit>ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_NUMBER}(?:ms|s|m|h|d))+")
_BARE = re.compile(_NUMBER)


def parse_seconds(value: object) -> float:
    """Return a duration in seconds; a bare number is in seconds.

    Raises:
        ValueError: the value is not a duration, negative or not finite; the message describes the valid format.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = _float(value)
    elif isinstance(value, str):
        seconds = _seconds_of(value.strip())
    else:
        raise ValueError(_NEEDS)  # noqa: TRY004 (pydantic reports ValueErrors only)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(_NEEDS)
    return seconds


def format_seconds(seconds: float) -> str:
    """Return a duration in the parsed format, in the largest units: ``90`` is ``1m30s``, ``0.5`` is ``500ms``."""
    left, text = round(seconds * 1000), ""
    for unit in ("h", "m", "s", "ms"):
        amount, left = divmod(left, round(_UNITS[unit] * 1000))
        text += f"{amount}{unit}" if amount else ""
    return text or "0s"


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _seconds_of(text: str) -> float:
    if _BARE.fullmatch(text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise ValueError(_NEEDS)
    return math.fsum(float(part["amount"]) * _UNITS[part["unit"]] for part in _PART.finditer(text))


Seconds = Annotated[
    float,
    BeforeValidator(parse_seconds),
    number_schema(rf"\s*(?:{_NUMBER}|(?:{_NUMBER}(?:ms|s|m|h|d))+)\s*", minimum=0),
]
"""Field type: a duration in seconds. Add ``Field(gt=0)`` where zero makes no sense."""
