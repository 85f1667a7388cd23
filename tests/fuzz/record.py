"""The record of fuzzing: a line for each target of a run, and the table of docs/reliability.md that is made of it.

In: what came of a run. Out: lines of JSON that are only ever added; a part of a page. Called by ``run``, and as
``python tests/fuzz/record.py [--check] docs/reliability.md`` by ``make generate`` and ``make verify``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.record import commit
from fuzz.found import FOUND
from support.suite.written import Section, write_or_check

RECORD: Final = Path(__file__).parent / "record.jsonl"
SECTION: Final = Section("tests/fuzz/record.jsonl")


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one target in one run: cases of the numbers from ``seed`` on, and the number of wrong ones."""

    target: str
    seed: int
    cases: int
    wrong: int
    commit: str


def lines(came: Iterable[Any], seed: int) -> list[Line]:
    """Return the lines of a run."""
    now = commit()
    return [Line(item.target, seed, item.cases, len(item.findings), now) for item in came]


def append(path: Path, new: Sequence[Line]) -> None:
    """Add a run to the record."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(line)) + "\n" for line in new)


def read(path: Path) -> list[Line]:
    """Return all lines of a record."""
    return [Line(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def summary(known: Sequence[Line]) -> str:
    """Return what a page says of these runs."""
    from fuzz.catalogue import TARGETS  # noqa: PLC0415 (imports every service)

    faults, cases = sum(map(len, FOUND.values())), sum(line.cases for line in known)
    rows = [
        f"{cases:,} cases of {len(TARGETS)} parsers so far; {faults} defects were found and fixed.",
        "",
        "| target | input | expected result | cases | seeds | defects found |",
        "|---|---|---|---|---|---|",
    ]
    for target in TARGETS.values():
        own = [line for line in known if line.target == target.name]
        seeds = ", ".join(
            f"{line.seed}–{line.seed + line.cases - 1}" for line in sorted(own, key=lambda line: line.seed)
        )
        rows.append(
            f"| `{target.name}` | {target.reads} | {target.oracle} | {sum(line.cases for line in own):,} | {seeds} "
            f"| {len(FOUND.get(target.name, ()))} |"
        )
    rows += ["", "Fixed defects:", ""]
    rows += [f"- `{name}`: {fault}" for name, found in FOUND.items() for fault in found]
    return "\n".join(rows) + "\n"


def main() -> int:
    """Write the page, or report that it is out of date."""
    return write_or_check(sys.argv[1:], lambda text: SECTION.replace(text, summary(read(RECORD))))


if __name__ == "__main__":
    sys.exit(main())
