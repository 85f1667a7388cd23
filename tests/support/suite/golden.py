"""Golden files: what a manifest looks like, kept where a reviewer sees it change.

``pytest --update-golden`` writes them; without it a difference fails the test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "data"


class Golden:
    """Compares a JSON value with tests/data/<name>.json."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def check(self, name: str, value: Any) -> None:
        """Fail the test when the value differs from the golden file; write the file when asked to."""
        path = DATA / f"{name}.json"
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {path.name}: run pytest with --update-golden and review it"
        assert text == path.read_text(), f"{path.name} differs: run pytest with --update-golden and review the change"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare with, or update, golden files."""
    return Golden(update=bool(request.config.getoption("--update-golden")))
