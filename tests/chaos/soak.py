"""Has the whole system work for half an hour while little things go wrong: `make soak [SECONDS=…] [SEED=…]`.

In: seconds, a seed. Out: what each process holds over time, as a table; a line in the record; exit status 1 if one
grows (see ``flat``), or if the end is not the requested one. It runs a schedule of chaos at a slower pace, with faults
that end no process, so that each can be measured for long.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos import flat, run
from chaos.check import check
from chaos.fault_plan import PART as FAULTS
from chaos.fault_plan import REPLICAS, Fault
from chaos.flat import Sample, Verdict
from chaos.outcome import OK, Outcome
from chaos.record import SOAKS, SoakLine, commit, soak_table
from chaos.schedule import WORK, make_schedule
from chaos.steps import Schedule, Step
from chaos.world import World, world

GENTLE: Final = frozenset(
    {
        Fault.KUBE_CUT,
        Fault.KUBE_REFUSED,
        Fault.KUBE_LATE,
        Fault.KUBE_BUSY,
        Fault.KUBE_BROKEN,
        Fault.KUBE_EXPIRED,
        Fault.KUBE_GONE,
        Fault.KUBE_ANSWERS_LOST,
        Fault.BUS_CUT,
        Fault.BUS_REFUSED,
        Fault.BUS_SILENT,
        Fault.BUS_LATE,
        Fault.NATS_KILL,
        Fault.NATS_STOP,
        Fault.NATS_FREEZE,
        Fault.NATS_ROLL,
        Fault.NATS_PARTED,
        Fault.NATS_PARTED_SILENTLY,
        Fault.GARBAGE,
        Fault.API_RESTART,
        Fault.LATTICE_CUT,
        Fault.LATTICE_REFUSED,
        Fault.LATTICE_SILENT,
        Fault.LATTICE_RESTART,
        Fault.WADM_RESTART,
    }
)
"""Faults that a process lives through, and after which it is what it was."""
_SLOWER: Final = 4.0
"""A step of chaos every so many times later: half an hour of it would be longer than anybody's day."""
_SAMPLE_SECONDS: Final = 5.0
_REPLICA: Final = "replica "
_STILL_SECONDS: Final = 14.0
"""Longer than a lease: the other replica leads meanwhile."""


def soak_schedule(seed: int, seconds: float) -> Schedule:
    """Return the schedule; within the warm-up each replica leads once."""
    quick = make_schedule(seed, seconds / _SLOWER, faults=GENTLE)
    steps = [dataclasses.replace(step, at=round(step.at * _SLOWER, 2)) for step in quick.steps]
    warm = flat.WARM_SHARE * seconds
    for number, name in enumerate(REPLICAS):
        at = warm * (number + 1) / (len(REPLICAS) + 1)
        steps.append(Step(round(at, 2), FAULTS, Fault.STOP, name, seconds=min(_STILL_SECONDS, warm / 4)))
    return Schedule(seed, seconds, quick.servers, tuple(sorted(steps, key=lambda step: step.at)))


async def sample(made: World, samples: dict[str, list[Sample]]) -> None:
    """Look at all processes now and again, until cancelled."""
    began = time.monotonic()
    while True:
        pids = {
            f"{_REPLICA}{name}": item.process.pid for name, item in made.replicas.items() if item.process is not None
        }
        pids |= {f"nats-server {number}": item.pid for number, item in enumerate(made.bus.all) if item.pid is not None}
        at = time.monotonic() - began
        for name, pid in pids.items():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                held = Sample(at, process.memory_info().rss, process.num_fds())
                samples[name].append(held)
        await asyncio.sleep(_SAMPLE_SECONDS)


async def soak(schedule: Schedule, directory: Path, samples: dict[str, list[Sample]]) -> Outcome:
    """Carry out a soak and return its outcome. The measurements are in ``samples``."""
    async with run.control_plane("", WORK) as cluster:
        await asyncio.to_thread(run.define, cluster)
        with (
            run.replica_forkserver() as made_by,
            (directory / "progress").open("w", encoding="utf-8", buffering=1) as log,
        ):
            try:
                async with world(cluster, made_by, schedule, directory, lambda text: print(text, file=log)) as made:
                    looking = asyncio.create_task(sample(made, samples))
                    await made.carry_out()
                    looking.cancel()
                    return await check(made)
            except Exception as error:  # noqa: BLE001 - what was held up to then is told
                return Outcome([f"the run broke off: {error!r} {getattr(error, '__notes__', '')}"])


def verdicts_of(samples: dict[str, list[Sample]], outcome: Outcome) -> list[Verdict]:
    """Return the verdict on each process and on the replicas together; what these grow by is added to the outcome."""
    replicas = [found for name, found in samples.items() if name.startswith(_REPLICA)]
    both = flat.judge("both replicas", flat.together(replicas), len(replicas))
    outcome.wrong += both.growth
    return [*(flat.judge(name, found) for name, found in samples.items()), both]


def main() -> int:
    """Soak, and print the outcome."""
    parser = argparse.ArgumentParser(description="Have the whole system work for long, and see whether it grows.")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help=f"add a line to {SOAKS.name}")
    options = parser.parse_args()
    schedule = soak_schedule(options.seed, options.seconds)
    directory = Path(tempfile.mkdtemp(prefix=f"soak-{options.seed}-"))
    samples: dict[str, list[Sample]] = defaultdict(list)
    outcome = asyncio.run(soak(schedule, directory, samples))
    held = {name: [dataclasses.astuple(item) for item in found] for name, found in samples.items()}
    (directory / "samples.json").write_text(json.dumps(held))
    verdicts = verdicts_of(samples, outcome)
    faults = sum(1 for _ in schedule.of(FAULTS))
    print(f"seed {options.seed}, {options.seconds:g} s, {len(schedule.steps)} steps, {faults} of them faults")
    found = [*outcome.wrong, *outcome.undecided]
    print(f"{soak_table(verdicts)}\n{OK if outcome.good else 'WRONG'}", *found, sep="\n  ", flush=True)
    if options.record:
        line = SoakLine(options.seed, options.seconds, commit(), faults, outcome.verdict, tuple(verdicts))
        with SOAKS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(line)) + "\n")
    if outcome.good:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"  logs: {directory}", flush=True)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
