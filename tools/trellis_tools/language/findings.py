"""Runs Vale over pages, and parses its findings.

In: pages, the program, its configuration. Out: findings by source file and line, and their counts. Called by the
command. Invariant: a finding has the path of the source file, not that of the extracted file.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_tools.language.pages import Page

CONFIGURATION: Final = ".vale/.vale.ini"
_FILES_PER_RUN: Final = 400
_SECONDS: Final = 600


class ValeError(Exception):
    """Vale did not run, or a case of its rules failed."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One finding. ``line``: of the source file; the first is 1."""

    source: str
    line: int
    rule: str
    area: str
    message: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.rule} ({self.area}): {self.message}"


def check_rules(vale: Path, root: Path) -> None:
    """Run the cases of the rules.

    Raises:
        ValeError: a case failed; the message has the output of Vale.
    """
    _run([str(vale), "--config", CONFIGURATION, "--no-global", "--no-color", "test", ".vale"], root)


def findings(vale: Path, root: Path, wanted: Iterable[Page]) -> list[Finding]:
    """Return the findings of Vale in pages, sorted by source file and line.

    Raises:
        ValeError: Vale did not run.
    """
    with tempfile.TemporaryDirectory(prefix="trellis-language-") as folder:
        files = {_file(page, root, Path(folder)): page for page in wanted}
        names = list(files)
        found: list[Finding] = []
        for start in range(0, len(names), _FILES_PER_RUN):
            part = names[start : start + _FILES_PER_RUN]
            output = _run(
                [str(vale), "--config", CONFIGURATION, "--no-global", "--no-exit", "--output", "JSON", *part], root
            )
            found += parse(output, files)
    return sorted(found)


def parse(output: str, files: dict[str, Page]) -> list[Finding]:
    """Return the findings in the JSON output of Vale; ``files``: the page of each extracted file."""
    return [
        Finding(files[name].source, alert["Line"], alert["Check"], files[name].area, alert["Message"])
        for name, alerts in json.loads(output).items()
        for alert in alerts
    ]


def counts(found: Sequence[Finding]) -> str:
    """Return a table of the number of findings: one row per rule, one column per area."""
    numbers = Counter((item.rule, item.area) for item in found)
    rules, areas = sorted({item.rule for item in found}), sorted({item.area for item in found})
    rows = [["rule", *areas, "all"]]
    rows += [[rule, *(str(numbers[rule, area]) for area in areas), _sum(numbers, rules=[rule])] for rule in rules]
    rows.append(["all", *(_sum(numbers, areas=[area]) for area in areas), str(len(found))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(_cells(row, widths)).rstrip() + "\n" for row in rows)


def _sum(numbers: Counter[tuple[str, str]], *, rules: Sequence[str] = (), areas: Sequence[str] = ()) -> str:
    return str(sum(count for (rule, area), count in numbers.items() if rule in rules or area in areas))


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def _file(page: Page, root: Path, folder: Path) -> str:
    """Return the path of the file for Vale; write it if the text is extracted."""
    if page.text is None:
        return str(root / page.source)
    file = folder / page.area / f"{page.source}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page.text)
    return str(file)


def _run(command: Sequence[str], root: Path) -> str:
    done = subprocess.run(  # noqa: S603 - local program, no shell
        command, cwd=root, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode != 0:
        raise ValeError(f"{done.stdout}{done.stderr}".strip())
    return done.stdout
