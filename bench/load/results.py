"""The measurements of one size: a line of JSON, added to the file of all and never changed.

In: figures. Out: lines. Called by ``run``, ``page`` and ``profile``. Invariant: a line has its machine,
of which commit and when; ``alone`` is whether the machine did nothing else: only such lines are shown.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from load.sizes import Size

FILE: Final = Path(__file__).parent / "results.jsonl"


@dataclass(frozen=True, slots=True)
class Changed:
    """Changes of one kind, one after another. Seconds; the rest is for one change, above what goes on anyway."""

    count: int
    p50: float
    p99: float
    processor: float
    writes: float
    messages: float
    written: dict[str, float]

    @classmethod
    def of(cls, took: Sequence[float], processor: float, written: dict[str, int], messages: float) -> Self:
        """Return the figures of changes; processor time, writes and messages are of all of them."""
        count = len(took)
        each = {what: round(number / count, 2) for what, number in sorted(written.items())}
        return cls(
            count,
            round(statistics.median(took), 4),
            round(sorted(took)[min(count - 1, int(count * 0.99))], 4),
            round(processor / count, 4),
            round(sum(written.values()) / count, 2),
            round(messages / count, 1),
            each,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """One size. ``ready`` and ``settled``: seconds from the start of a process that finds new work; ``again``: of one
    that finds none; memory in MiB; ``idle``: what it does in a second in which nothing changes.
    """

    date: str
    commit: str
    machine: str
    alone: bool
    separate: bool
    size: Size
    added: Size
    ready: float
    settled: dict[str, float]
    again: dict[str, float]
    memory: dict[str, float]
    work: dict[str, float]
    idle: dict[str, float]
    changes: dict[str, Changed]


def append(path: Path, result: Result) -> None:
    """Add one size."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(result)) + "\n")


def read(path: Path) -> list[Result]:
    """Return all that was measured, in the order of the file."""
    return [_parsed(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _parsed(line: dict[str, Any]) -> Result:
    changes = {kind: Changed(**item) for kind, item in line["changes"].items()}
    sizes = {name: Size(**line[name]) for name in ("size", "added")}
    return Result(**line | sizes | {"changes": changes})


def commit() -> str:
    """Return the commit that is checked out, with a ``+`` if something was changed since."""
    described = ["git", "describe", "--always", "--exclude=*", "--abbrev=10", "--dirty=+"]
    done = subprocess.run(described, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
