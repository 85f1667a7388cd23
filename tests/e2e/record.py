"""The record of ``make test-all``: for each part its last run, and the table of docs/reliability.md that is made of it.

In: what came of a part. Out: ``record.json``, a row for each part; a section of a page. Called by ``run``, and as
``python tests/e2e/record.py [--check] docs/reliability.md`` by ``make generate`` and ``make verify``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from e2e.parts import PARTS
from support.suite.written import Section, write_or_check

RECORD: Final = Path(__file__).parent / "record.json"
SECTION: Final = Section("tests/e2e/record.json")
PASSED: Final = "passed"
FAILED: Final = "FAILED"
NOT_RUN: Final = "NOT RUN"


@dataclass(frozen=True, slots=True)
class Row:
    """The last run of a part.

    ``date``: UTC, ``YYYY-MM-DD``. ``tests``: how many passed, None where a part counts none. ``why``: what was missing
    on the machine, for the part or for tests that were skipped.
    """

    date: str
    commit: str
    outcome: str
    seconds: int = 0
    tests: int | None = None
    why: str = ""


def read() -> dict[str, Row]:
    """Return the rows by the names of their parts."""
    return {name: Row(**row) for name, row in json.loads(RECORD.read_text(encoding="utf-8")).items()}


NAMES: Final = tuple(part.name for part in PARTS)


def write(rows: Mapping[str, Row], names: Iterable[str] = NAMES) -> None:
    """Write the rows in the order of the parts; a part that is no more loses its row."""
    lines = {name: asdict(rows[name]) for name in names if name in rows}
    RECORD.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


def table(rows: Mapping[str, Row]) -> str:
    """Return what the page says; a part without a run is in it too."""
    lines = ["| part | last run | commit | outcome | tests passed | seconds | not run, and why |", "|" + "---|" * 7]
    for part in PARTS:
        row = rows.get(part.name, Row("never", "", NOT_RUN))
        tests = "" if row.tests is None else str(row.tests)
        cells = (part.name, row.date, row.commit, row.outcome, tests, str(row.seconds or ""), row.why.replace("|", "/"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or report that it is out of date."""
    return write_or_check(sys.argv[1:], lambda text: SECTION.replace(text, table(read())))


if __name__ == "__main__":
    sys.exit(main())
