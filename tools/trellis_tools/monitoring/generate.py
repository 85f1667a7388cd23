"""Writes the monitoring files, or checks them: ``make generate``, ``make verify``.

In: the root of the repository. Out: the dashboard of the chart, to which ``deploy/monitoring`` links, and the table of
metrics in ``docs/observability/metrics.md``, or an exit status with the reasons.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from trellis_tools.monitoring.dashboard import make_dashboard
from trellis_tools.monitoring.metrics_table import with_table

CHART: Final = Path("deploy/helm/trellis/monitoring")
PAGE: Final = Path("docs/observability/metrics.md")


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.monitoring.generate", description=__doc__)
    parser.add_argument("root", type=Path, help="the repository")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    arguments = parser.parse_args(argv)
    root: Path = arguments.root
    problems = []
    for path, text in documents(root).items():
        there = root / path
        if arguments.check and (not there.exists() or there.read_text() != text):
            problems.append(f"{path}: out of date, run make generate\n")
        elif not arguments.check:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_text(text)
    sys.stderr.write("".join(problems))
    return 1 if problems else 0


def documents(root: Path) -> dict[Path, str]:
    """Return the files by their path in the repository."""
    return {
        CHART / "dashboard.json": json.dumps(make_dashboard(), indent=2) + "\n",
        PAGE: with_table((root / PAGE).read_text()),
    }


if __name__ == "__main__":
    sys.exit(main())
