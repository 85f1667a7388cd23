"""``make test-all``: what ``make test`` leaves out; each part runs, or is named as NOT RUN with the reason.

``python tests/e2e/run.py [--quick] [--only PART OF A NAME] [--record]``: ``--quick`` runs only the parts that take a
minute; ``--record`` writes what came of each part into ``tests/e2e/record.json`` and docs/reliability.md.

Exit status: 0 all parts passed, 1 a part failed, 3 nothing failed but a part or a test was not run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.record import commit
from e2e import record
from e2e.parts import PARTS, Part
from e2e.record import FAILED, NOT_RUN, PASSED, Row

ROOT = Path(__file__).parents[2]
NOT_RUN_STATUS = 3


def main() -> int:
    """Run what can be run; print a line for each part, and for each test that was not run."""
    parser = argparse.ArgumentParser(description="Run what `make test` leaves out.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="the parts with this in their name")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rows = {}
    for part in PARTS:
        if options.only in part.name and (part.quick or not options.quick):
            rows[part.name] = row = run(part)
            print(f"{row.outcome}  {part.name}{f': {row.why}' if row.why else ''}", flush=True)
            if options.record:
                record.write(record.read() | rows)
    if options.record:
        subprocess.run([sys.executable, record.__file__, ROOT / "docs/reliability.md"], check=True)
    if any(row.outcome == FAILED for row in rows.values()):
        return 1
    return NOT_RUN_STATUS if any(row.why for row in rows.values()) else 0


def run(part: Part) -> Row:
    """Run a part, if this machine can."""
    date = datetime.now(UTC).date().isoformat()
    if (missing := part.missing()) is not None:
        for test in _tests(part):
            print(f"{NOT_RUN}    {test}")
        return Row(date, commit(), NOT_RUN, why=missing)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        counting = [f"--junit-xml={report}"] if part.counted else []
        code = subprocess.run([sys.executable, *part.arguments, *counting], check=False, cwd=ROOT).returncode
        passed, skipped = read_report(report) if report.exists() else (None, [])
    for item in skipped:
        print(f"{NOT_RUN}    {item}")
    outcome = PASSED if code == 0 else FAILED
    return Row(date, commit(), outcome, round(time.monotonic() - began), passed, "; ".join(skipped))


def read_report(report: Path) -> tuple[int, list[str]]:
    """Return how many tests passed, and each that was skipped with its reason."""
    cases = list(ET.parse(report).getroot().iter("testcase"))
    skipped = [f"{case.get('name')}: {item.get('message')}" for case in cases for item in case.findall("skipped")]
    bad = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    return len(cases) - bad - len(skipped), skipped


def _tests(part: Part) -> list[str]:
    """Return the names of a part's tests."""
    if part.tests is None:
        return []
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", str(part.tests)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in answer.stdout.splitlines() if "::" in line]


if __name__ == "__main__":
    sys.exit(main())
