"""A pytest plugin: ``make check`` leaves out the unit and contract tests that ``tests/slow.json`` names.

They are the tests of which one case took ``LIMIT`` seconds or more when the record was written, a few hundred of
thousands that take more than half of the time; ``make test`` runs them with all others. A test that was not recorded
is run.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

LEAVE_OUT_VARIABLE: Final = "LEAVE_OUT_SLOW_TESTS"
RECORD_VARIABLE: Final = "RECORD_SLOW_TESTS"
RECORD: Final = Path(__file__).parents[2] / "slow.json"
"""Seconds of the longest case by test, as pytest's node id names it without the parameters."""
LIMIT: Final = 0.1
"""Seconds."""


def read() -> dict[str, float]:
    """Return the record."""
    found: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def test_of(node: str) -> str:
    """Return the test that a node id is a case of."""
    return node.partition("[")[0]


def divide(nodes: list[str], recorded: dict[str, float]) -> tuple[list[str], list[str]]:
    """Return the node ids that are quick, and those that are recorded as slow; both keep their order."""
    quick = [node for node in nodes if test_of(node) not in recorded]
    return quick, [node for node in nodes if test_of(node) in recorded]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow ones out, where the environment asks for it."""
    if LEAVE_OUT_VARIABLE not in os.environ:
        return
    slow = set(divide([item.nodeid for item in items], read())[1])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in slow])
    items[:] = [item for item in items if item.nodeid not in slow]


class Recorder:
    """Adds up how long the phases of each case took."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a case, wherever it ran."""
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Replace the record by that of this run."""
        longest: dict[str, float] = defaultdict(float)
        for node, seconds in self._seconds.items():
            longest[test_of(node)] = max(longest[test_of(node)], seconds)
        slow = {test: round(seconds, 1) for test, seconds in sorted(longest.items()) if seconds >= LIMIT}
        RECORD.write_text(json.dumps(slow, indent=1) + "\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that collects the reports of all tests."""
    if RECORD_VARIABLE in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())
