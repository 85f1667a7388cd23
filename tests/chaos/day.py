"""The runs of a day: seeds made of its date, so that every day breaks something else, and the same on all machines.

Pure. In: a date of UTC. Out: seeds, what their runs do, the command that has one again. Called by
tests/integration/chaos/test_seeds_of_the_day.py, and by tests. Invariants: runs with one and with three servers of NATS
are among those of each day; no seed of a date is another day's; the command's schedule is the run's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Final

from chaos import controller_work, node_work, secret_work
from chaos.fault_plan import Fault
from chaos.schedule import make_schedule, servers_of
from chaos.steps import Schedule

VARIABLE: Final = "SUITE_DAY"
"""Another day than today, as 2026-11-23: what failed yesterday is had again today. No ``TRELLIS_`` before it: every
process of a whole run inherits it, and a service warns of each setting that it does not know."""
SERVERS: Final = (1, 3, 1, 3, 1)
"""How many servers NATS has in each run of a day."""
SECONDS: Final = 12.0
PARTS: Final = (node_work.PART, controller_work.PART, secret_work.PART)
"""Not that of lattices: it takes a wadm, which is built from crates."""
WITHOUT: Final = (Fault.NATS_FULL,)
"""It takes the right to mount, which not every machine gives; the day is to be the same on all."""
FOUND: Final = (2006, 2009, 2052, 2066, 2096, 2142, 2159, 2166, 2198)
"""Seeds that found a fault of ours, by schedules of ``SECONDS`` of everything. Each fault has a test of its own, as a
seed says when what goes wrong, and not how the processes meet it; one of them comes again each day."""
_MOST: Final = 1000
"""Seeds that a day may draw from."""


def day_of(environment: Mapping[str, str], now: date) -> date:
    """Return the day whose runs are wanted."""
    return date.fromisoformat(environment.get(VARIABLE) or now.isoformat())


def seeds_of(day: date) -> tuple[int, ...]:
    """Return the seeds of a day, one for each of ``SERVERS``: its date and a number, the first that have so many."""
    first = int(f"{day:%Y%m%d}") * _MOST
    having = {count: _having(count, range(first, first + _MOST)) for count in {*SERVERS}}
    return tuple(next(having[count]) for count in SERVERS)


def found_on(day: date) -> int:
    """Return the seed that found something once and comes again on a day."""
    return FOUND[day.toordinal() % len(FOUND)]


def _having(servers: int, seeds: Iterable[int]) -> Iterator[int]:
    return (seed for seed in seeds if servers_of(seed) == servers)


def schedule_of(seed: int) -> Schedule:
    """Return what the run of a seed of a day does."""
    return make_schedule(seed, SECONDS, parts=PARTS, without=WITHOUT)


def command_of(seed: int) -> str:
    """Return the command that has a run of a day again."""
    arguments = f"--parts {','.join(PARTS)} --without {','.join(WITHOUT)}"
    return f'make chaos SEED={seed} RUNS=1 SECONDS={SECONDS:g} ARGS="{arguments}"'
