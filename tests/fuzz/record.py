"""The record of fuzzing: a line for each target of a run, and the table of docs/reliability.md that is made of it.

In: what came of a run. Out: lines of JSON that are only ever added; a part of a page. Called by ``run``, and as
``python tests/fuzz/record.py [--check] docs/reliability.md`` by ``make generate`` and ``make verify``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.record import commit
from fuzz.found import FOUND

RECORD: Final = Path(__file__).parent / "record.jsonl"
BEGIN: Final = "<!-- from here on by `make generate`, from tests/fuzz/record.jsonl -->\n"
END: Final = "<!-- up to here -->\n"


@dataclass(frozen=True, slots=True)
class Line:
    """What came of one target in one run: cases of the numbers from ``seed`` on, and how many were wrong."""

    target: str
    seed: int
    cases: int
    wrong: int
    commit: str


def lines(came: Iterable[Any], seed: int) -> list[Line]:
    """Return the lines of a run."""
    now = commit()
    return [Line(one.target, seed, one.cases, len(one.findings), now) for one in came]


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
        f"{cases:,} cases of {len(TARGETS)} parsers so far; {faults} faults were found and mended.",
        "",
        "| target | what is read | what is no fault | cases | of seeds | faults found |",
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
    rows += ["", "What was found, and is mended:", ""]
    rows += [f"- `{name}`: {fault}" for name, found in FOUND.items() for fault in found]
    return "\n".join(rows) + "\n"


def page(text: str, known: Sequence[Line]) -> str:
    """Return a page with its part about these runs made anew."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    return f"{head}{begin}\n{summary(known)}\n{end}{tail}" if begin and end else text


def main() -> int:
    """Write the page, or say that it is not what it has to be."""
    parser = argparse.ArgumentParser(description="Write the record of fuzzing into a page.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    former = options.page.read_text(encoding="utf-8")
    new = page(former, read(RECORD))
    if options.check and new != former:
        print(f"{options.page} differs from what `make generate` writes", file=sys.stderr)
        return 1
    if not options.check:
        options.page.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
