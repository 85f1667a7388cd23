"""Fuzzes what secrets_backend reads: `python tests/fuzz/run.py [--cases N] [--seed N] [--jobs N]`.

Each case is a seed: a finding is printed with it and had again by `--seed N --cases 1`. Exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.secret_cases import verdict

CHUNK = 2_000
SHOWN = 20


def chunk(seeds: range) -> tuple[Counter[str], list[str]]:
    """The outcomes of these cases, and a text for each that is wrong."""
    outcomes: Counter[str] = Counter()
    findings = []
    for seed in seeds:
        try:
            outcomes[verdict(seed)] += 1
        except Exception:  # noqa: BLE001 (a crash is what is looked for)
            findings.append(f"seed {seed}\n{traceback.format_exc()}")
    return outcomes, findings


def report(outcomes: Counter[str], findings: list[str], seconds: float) -> None:
    """Print what came out."""
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:>9}  {outcome}")
    for finding in findings[:SHOWN]:
        print(finding)
    cases = outcomes.total() + len(findings)
    print(f"{cases} cases in {seconds:.0f} s, {len(findings)} wrong")


def parts(first: int, cases: int) -> Iterable[range]:
    """Ranges of seeds."""
    return (range(start, min(start + CHUNK, first + cases)) for start in range(first, first + cases, CHUNK))


def main() -> int:
    """Run the cases; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description="Fuzz what secrets_backend reads.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first case; the next ones count up")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    outcomes: Counter[str] = Counter()
    findings: list[str] = []
    begun = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(asked.jobs) as pool:
        for some, wrong in pool.imap_unordered(chunk, parts(asked.seed, asked.cases)):
            outcomes += some
            findings += wrong
            if len(findings) > SHOWN:
                break
    report(outcomes, findings, time.monotonic() - begun)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
