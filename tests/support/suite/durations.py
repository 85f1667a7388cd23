"""A pytest plugin: the file that took longest comes first, by what ``tests/durations.json`` has recorded.

So that no long file is begun when all other workers are done. A file that was not recorded comes first of all: its
duration is unknown. With ``RECORD_VARIABLE`` set, a run writes the record, of the files that it ran.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

RECORD_VARIABLE: Final = "RECORD_DURATIONS"
RECORD: Final = Path(__file__).parents[2] / "durations.json"
"""Seconds by file; a file's path is that of pytest's node ids."""


def longest_first(files: list[str], recorded: dict[str, float]) -> list[str]:
    """Return the files in the order in which they begin; those of the same duration stay as they were."""
    return sorted(files, key=lambda file: -recorded.get(file, float("inf")))


def read() -> dict[str, float]:
    """Return the record."""
    found: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order what was collected; each worker has to come to the same order."""
    order = {file: place for place, file in enumerate(longest_first(list(dict.fromkeys(map(_file, items))), read()))}
    items.sort(key=lambda item: order[_file(item)])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


class Recorder:
    """Adds up how long the tests of each file took."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test, wherever it ran."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the record; what this run did not run stays as it was recorded, while the file is there."""
        root = Path(__file__).parents[3]
        seconds = {file: taken for file, taken in (read() | self._seconds).items() if (root / file).exists()}
        lines = {file: round(taken, 1) for file, taken in sorted(seconds.items())}
        RECORD.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that collects the reports of all tests."""
    if RECORD_VARIABLE in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())
