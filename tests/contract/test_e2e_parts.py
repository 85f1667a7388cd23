"""`make test-e2e` has every test under tests/e2e: one that is in no part of it would never run."""

from __future__ import annotations

import runpy
from pathlib import Path

E2E = Path(__file__).parents[1] / "e2e"


def test_every_file_is_a_part() -> None:
    parts = {part.tests for part in runpy.run_path(str(E2E / "run.py"))["PARTS"]}
    assert parts == set(E2E.rglob("test_*.py"))
