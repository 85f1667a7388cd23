"""Cases of a test, of which ``make test`` runs the first ones and ``make test-all`` the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return arguments for ``parametrize``: all cases, those after the first ``count`` with the mark ``thorough``.

    A case of several arguments is a ``pytest.param``.
    """
    return [
        case if number < count else pytest.param(*_arguments(case), marks=pytest.mark.thorough)
        for number, case in enumerate(cases)
    ]


def _arguments(case: Any) -> tuple[Any, ...]:
    # What pytest.param returns is a named tuple of arguments, marks and an id.
    return case.values if hasattr(case, "marks") else (case,)
