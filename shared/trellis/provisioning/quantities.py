"""Comparison of resource quantities: the API server writes ``1024Mi`` as ``1Gi``.

Pure. Called by ``provisioner``. Source: Kubernetes, ``resource.Quantity``: a decimal number with a suffix of powers of
ten or of two, or with an exponent.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_FORM: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,3}))?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def same_amount(one: str, other: str) -> bool:
    """Return whether two quantities are the same amount; other texts are compared as texts."""
    first, second = _amount(one), _amount(other)
    return one == other if first is None or second is None else first == second


def _amount(text: str) -> Fraction | None:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    number, suffix, exponent = found.groups()
    if suffix in _BINARY:
        return Fraction(number) * (1 << _BINARY[suffix])
    power = int(exponent) if exponent else _DECIMAL.get(suffix or "", 0)
    factor = Fraction(10 ** abs(power))
    return Fraction(number) * factor if power >= 0 else Fraction(number) / factor
