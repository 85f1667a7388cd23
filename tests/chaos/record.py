"""The record of runs and soaks: a line each, and the tables of docs/reliability.md that are made of it.

In: runs and what came of them. Out: lines of JSON that are only ever added; the end of a page. Called by ``run`` and
``soak``; as ``python tests/chaos/record.py [--check] docs/reliability.md`` by ``make generate`` and ``make verify``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos import fault_plan
from chaos.flat import Verdict
from chaos.outcome import OK, Outcome
from chaos.steps import Schedule

RECORD: Final = Path(__file__).parent / "record.jsonl"
SOAKS: Final = Path(__file__).parent / "soak.jsonl"
MARK: Final = "<!-- from here on by `make generate`, from tests/chaos/record.jsonl -->\n"


@dataclass(frozen=True, slots=True)
class Line:
    """One run. ``commit``: what was run; ``outcome``: ``ok``, or the first thing that was wrong."""

    seed: int
    seconds: float
    commit: str
    servers: int
    faults: dict[str, int]
    outcome: str
    settled: float
    starts: int
    writes: int
    took: int

    @classmethod
    def of(cls, schedule: Schedule, outcome: Outcome, commit: str, took: int) -> Line:
        """Return the line of a run."""
        faults: dict[str, int] = {}
        for step in schedule.of(fault_plan.PART):
            faults[step.act] = faults.get(step.act, 0) + 1
        return cls(
            schedule.seed,
            schedule.seconds,
            commit,
            schedule.servers,
            dict(sorted(faults.items())),
            outcome.verdict,
            round(outcome.settled, 1),
            outcome.starts,
            outcome.writes,
            took,
        )


@dataclass(frozen=True, slots=True)
class SoakLine:
    """One soak. ``faults``: how many went wrong meanwhile; ``processes``: what each held."""

    seed: int
    seconds: float
    commit: str
    faults: int
    outcome: str
    processes: tuple[Verdict, ...]


def append(path: Path, line: Line) -> None:
    """Add one run to the record."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(line)) + "\n")


def read(path: Path) -> list[Line]:
    """Return all runs of a record."""
    return [Line(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def read_soaks(path: Path) -> list[SoakLine]:
    """Return all soaks of a record, none if there is no record."""
    texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = (json.loads(text) for text in texts)
    return [SoakLine(**item | {"processes": tuple(Verdict(**each) for each in item["processes"])}) for item in found]


def commit() -> str:
    """Return the commit that is checked out, with a ``+`` if something was changed since."""
    described = ["git", "describe", "--always", "--exclude=*", "--abbrev=10", "--dirty=+"]
    done = subprocess.run(described, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def summary(lines: Sequence[Line]) -> str:
    """Return what a page says of these runs."""
    good = sum(line.outcome == OK for line in lines)
    faults = sum(sum(line.faults.values()) for line in lines)
    seconds = sum(line.seconds for line in lines)
    rows = [
        f"{len(lines)} runs, {good} successful; {faults} faults in {seconds / 60:.0f} minutes of schedules.",
        "",
        "| seed | seconds | commit | NATS servers | faults | settled after | outcome |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        count = sum(line.faults.values())
        rows.append(
            f"| {line.seed} | {line.seconds:g} | {line.commit} | {line.servers} | {count} | {line.settled:g} s "
            f"| {line.outcome.replace('|', '/')} |"
        )
    return "\n".join(rows) + "\n"


def met(lines: Sequence[Line]) -> str:
    """Return how many runs had each fault, as a table; one that none had is in it, too."""
    rows = ["| fault | runs | times |", "|---|---|---|"]
    for fault in fault_plan.Fault:
        counts = [line.faults.get(fault, 0) for line in lines]
        rows.append(f"| `{fault}` | {sum(map(bool, counts))} | {sum(counts)} |")
    three = sum(line.servers > 1 for line in lines)
    return f"{three} runs had three NATS servers, {len(lines) - three} had one.\n\n" + "\n".join(rows) + "\n"


def soak_table(processes: Sequence[Verdict]) -> str:
    """Return what processes held, as a table."""
    rows = ["| process | samples | MiB, first third | last third | open files, first third | last third |"]
    rows.append("|---|---|---|---|---|---|")
    for process in processes:
        memory, files = process.memory, process.files
        rows.append(
            f"| {process.name} | {process.samples} | {memory[0]:g} | {memory[1]:g} | {files[0]:g} | {files[1]:g} |"
        )
    return "\n".join(rows)


def soaked(lines: Sequence[SoakLine]) -> str:
    """Return what a page says of soaks."""
    if not lines:
        return "None is recorded.\n"
    parts = (
        f"Seed {line.seed}, {line.seconds / 60:g} minutes, commit {line.commit}, {line.faults} faults: "
        f"{line.outcome}.\n\n"
        f"{soak_table(line.processes)}\n"
        for line in lines
    )
    return "\n".join(parts)


def page(text: str, lines: Sequence[Line], soaks: Sequence[SoakLine] = ()) -> str:
    """Return a page with what its end says of the runs and soaks re-created."""
    head, mark, _ = text.partition(MARK)
    runs = f"## Faults in the runs so far\n\n{met(lines)}\n## Runs so far\n\n{summary(lines)}"
    return f"{head}{mark}\n## Soaks so far\n\n{soaked(soaks)}\n{runs}"


def main() -> int:
    """Write the page, or say that it is not what it has to be."""
    parser = argparse.ArgumentParser(description="Write the record of chaos into a page.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    former = options.page.read_text(encoding="utf-8")
    new = page(former, read(RECORD), read_soaks(SOAKS))
    if options.check and new != former:
        print(f"{options.page} differs from what `make generate` writes", file=sys.stderr)
        return 1
    if not options.check:
        options.page.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
