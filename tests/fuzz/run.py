"""Fuzzes what meets the outside: `python tests/fuzz/run.py [--cases N] [--seed N] [--jobs N] [--only TARGET,…]`.

Each case is a target and a number: a finding is printed with both, and had again by `--only TARGET --seed N --cases 1`;
`pytest tests/unit/fuzz -k TARGET` looks for a small one. Exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz import record
from fuzz.catalogue import TARGETS
from fuzz.limits import TooLong

CHUNK = 500
SHOWN = 20
DEFAULT_CASES = 500_000
HUNG_SECONDS = 300.0
"""Without any answer: a case hangs where no signal of its own process ends it."""


@dataclass(slots=True)
class Came:
    """The result of some cases of one target."""

    target: str
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        """Return the number of cases."""
        return self.outcomes.total() + len(self.findings)

    def add(self, other: Came) -> None:
        """Count others of the same target."""
        self.outcomes += other.outcomes
        self.findings += other.findings
        self.seconds += other.seconds


def chunk(part: tuple[str, range]) -> Came:
    """Try these cases of a target."""
    name, numbers = part
    logging.disable()  # libraries warn of what they are given
    came = Came(name)
    started = time.process_time()
    for number in numbers:
        try:
            came.outcomes[TARGETS[name].verdict(number)] += 1
        except (Exception, TooLong) as error:  # noqa: BLE001 (a crash is what is looked for)
            came.findings.append(_finding(name, number, error))
    came.seconds = time.process_time() - started
    return came


def _finding(name: str, number: int, error: BaseException) -> str:
    lines = traceback.format_exception(error)
    return f"--only {name} --seed {number} --cases 1\n" + "".join(
        line if len(line) < 4000 else line[:4000] + "…\n" for line in lines
    )


def parts(names: list[str], first: int, cases: int) -> Iterator[tuple[str, range]]:
    """Yield parts of all targets in turn, each with its share of the cases."""
    whole = sum(TARGETS[name].share for name in names)
    counts = {name: max(1, cases * TARGETS[name].share // whole) for name in names}
    for start in range(0, max(counts.values()), CHUNK):
        for name, count in counts.items():
            if start < count:
                yield name, range(first + start, first + min(start + CHUNK, count))


def results(jobs: int, todo: Iterable[tuple[str, range]]) -> Iterator[Came]:
    """Yield the result of each part, in any order.

    Raises:
        multiprocessing.TimeoutError: nothing came for :data:`HUNG_SECONDS`.
    """
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        coming = pool.imap_unordered(chunk, todo)
        while True:
            try:
                yield coming.next(HUNG_SECONDS)
            except StopIteration:
                return


def report(came: Iterable[Came], seconds: float) -> None:
    """Print what came out."""
    for item in came:
        shown = ", ".join(f"{count} {outcome}" for outcome, count in item.outcomes.most_common(4))
        print(f"{item.target:28} {item.cases:>8} cases {item.seconds:>6.1f} s  {shown}")
    findings = [finding for item in came for finding in item.findings]
    for finding in findings[:SHOWN]:
        print(f"\n{finding}")
    print(f"{sum(item.cases for item in came)} cases in {seconds:.0f} s, {len(findings)} wrong")


def main() -> int:
    """Run the cases; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description="Fuzz every parser that meets the outside.")
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0, help="the first case of each; the next ones count up")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help=f"one of, or several with commas: {', '.join(TARGETS)}")
    parser.add_argument("--record", action="store_true", help=f"add what came to {record.RECORD.name}")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"there is no target {', '.join(unknown)}: there are {', '.join(TARGETS)}")
    came = {name: Came(name) for name in names}
    started = time.monotonic()
    try:
        for result in results(options.jobs, parts(names, options.seed, options.cases)):
            came[result.target].add(result)
            if sum(len(each.findings) for each in came.values()) > SHOWN:
                break
    except multiprocessing.TimeoutError:
        print(
            f"no answer for {HUNG_SECONDS:.0f} s: a case hangs in a library; try each target by --only", file=sys.stderr
        )
        return 1
    report(came.values(), time.monotonic() - started)
    if options.record:
        record.append(record.RECORD, record.lines(came.values(), options.seed))
    return 1 if any(item.findings for item in came.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
