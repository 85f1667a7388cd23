"""Runs chaos: `python tests/chaos/run.py [--seed N] [--runs N] [--seconds S]`, or `make chaos SEED=… RUNS=… SECONDS=…`.

Each run is a seed: what it does is printed with it, and had again with it. In: seeds. Out: a line for each in the
record, the logs of those that went wrong. Exit status 1 if one did. ``--jobs``: so many at a time, each in a control
plane of its own, as runs restart theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos import lattice_work, small_disk
from chaos.check import check
from chaos.day import FOUND, SECONDS
from chaos.fault_plan import PART, Fault
from chaos.outcome import Outcome
from chaos.record import Line, append, commit
from chaos.schedule import WORK, make_schedule
from chaos.steps import Schedule, Step
from chaos.waiting import NoProcessorError
from chaos.world import world
from support.nodes.installers import INSTALLER_STAGES
from support.suite import stepped_clock
from support.suite.forkserver import Forkserver, forkserver
from trellis.crds.kinds import APPLICATIONS, KINDS, Kind, make_definition
from trellis.kube.resources import DEFINITIONS
from trellis_dev.localcluster import ClusterInfo, Lattices, local_cluster, up
from trellis_dev.localcluster.api import Api


def define(cluster: ClusterInfo, kinds: Sequence[Kind] = (*KINDS, APPLICATIONS)) -> None:
    """Have kinds served; all that services know, if none are named."""
    api = Api.of_kubeconfig(Path(cluster.kubeconfig))
    for kind in kinds:
        api.call("POST", DEFINITIONS.path(), make_definition(kind))
    paths = [f"/apis/{kind.group}/{kind.version}/{kind.plural}" for kind in kinds]
    deadline = time.monotonic() + 60
    while not all(map(api.ok, paths)):
        assert time.monotonic() < deadline, "the kinds are not served"
        time.sleep(0.1)
    api.close()


async def one_run(cluster: ClusterInfo, made_by: Forkserver, schedule: Schedule, directory: Path) -> Outcome:
    """Carry out one schedule; return its outcome. Its log is the file ``progress`` in the directory."""
    began = time.monotonic()
    with (directory / "progress").open("w", encoding="utf-8", buffering=1) as log:
        try:
            async with world(cluster, made_by, schedule, directory, lambda text: print(text, file=log)) as made:
                print(f"began after {time.monotonic() - began:.1f} s", file=log)
                await made.carry_out()
                outcome = await check(made)
        except NoProcessorError as error:
            outcome = Outcome(undecided=[str(error)])
        except Exception as error:  # noqa: BLE001 - one run must not end the others
            traceback.print_exc(file=log)
            outcome = Outcome([f"the run broke off: {error!r} {getattr(error, '__notes__', '')}"])
        for item in outcome.wrong:
            print(f"WRONG  {item}", file=log)
        for item in outcome.undecided:
            print(f"UNDECIDED  {item}", file=log)
        print(f"over after {time.monotonic() - began:.1f} s", file=log)
    return outcome


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. ``left_out``: steps that this machine does not support; ``directory``: its logs, if it is still
    there.
    """

    schedule: Schedule
    left_out: tuple[Step, ...]
    outcome: Outcome
    directory: Path
    seconds: float


def summary(run: Run, again: str) -> str:
    """Return a text about a run, with the command that runs it ``again``."""
    schedule, outcome = run.schedule, run.outcome
    faults = sum(1 for _ in schedule.of(PART))
    verdict = f"{len(outcome.wrong)} WRONG" if outcome.wrong else "undecided" if outcome.undecided else "ok"
    text = "".join(f"seed {schedule.seed}: left out, as this machine has it not: {item}\n" for item in run.left_out)
    text += (
        f"seed {schedule.seed}: {verdict}; {schedule.servers} NATS, {len(schedule.steps)} steps, {faults} of them "
        f"faults, settled after {outcome.settled:.1f} s, {outcome.writes} writes, {outcome.starts} starts, "
        f"{run.seconds:.0f} s in all"
    )
    text += "".join(f"\n  {item}" for item in [*outcome.wrong, *outcome.undecided][:12])
    return text if outcome.good else f"{text}\n  logs: {run.directory}\n  again: {again}"


async def run_all(options: argparse.Namespace, seeds: Iterator[int]) -> int:
    """Run seeds one after another; return how many went wrong.

    After a failure, the control plane is replaced, so that its state does not affect the next run.
    """
    wrong, seed = 0, next(seeds, None)
    with replica_forkserver() as made_by:
        while seed is not None:
            async with control_plane(options.cluster, options.parts) as cluster:
                await asyncio.to_thread(define, cluster)
                while seed is not None:
                    good = await run_seed(options, cluster, made_by, seed)
                    wrong += not good
                    seed = next(seeds, None)
                    if not good and not options.cluster:
                        break
    return wrong


def replica_forkserver() -> AbstractContextManager[Forkserver]:
    """Return the forkserver of replicas: processes that die on order, and whose clocks can be stepped."""
    return forkserver("chaos.crash_on_order", **{stepped_clock.VARIABLE: os.devnull})


@contextlib.asynccontextmanager
async def control_plane(name: str, parts: Collection[str]) -> AsyncIterator[ClusterInfo]:
    """Have a control plane for parts of the workload; one that was given a name is there before and afterwards."""
    stages, lattices = INSTALLER_STAGES, Lattices(hosts=0) if lattice_work.PART in parts else None
    if name:
        yield await asyncio.to_thread(up, name, audit=True, kwok_stages=stages, lattices=lattices)
        return
    async with local_cluster(audit=True, kwok_stages=stages, lattices=lattices) as cluster:
        yield cluster


async def run_seed(options: argparse.Namespace, cluster: ClusterInfo, made_by: Forkserver, seed: int) -> bool:
    """Carry out the schedule of a seed; return whether all was well."""
    run = await carry_out(cluster, made_by, schedule_of(options, seed), keep=options.keep)
    print(summary(run, f"make chaos SEED={seed} RUNS=1 SECONDS={options.seconds:g}{again(options)}"), flush=True)
    if options.record is not None:
        append(options.record, Line.of(run.schedule, run.outcome, commit(), round(run.seconds)))
    return run.outcome.good


def without_what_is_missing(wanted: Schedule, *, mounts: bool, wadm: bool) -> tuple[Schedule, tuple[Step, ...]]:
    """Return the possible part of a schedule, and the rest: a full disk needs the permission to mount."""
    missing = {Fault.NATS_FULL: not mounts, Fault.WADM_RESTART: not wadm}
    left_out = tuple(step for step in wanted.of(PART) if missing.get(Fault(step.act)))
    steps = tuple(step for step in wanted.steps if step not in left_out)
    return dataclasses.replace(wanted, steps=steps), left_out


async def carry_out(cluster: ClusterInfo, made_by: Forkserver, wanted: Schedule, *, keep: bool = False) -> Run:
    """Carry out the possible steps of a schedule; the logs are deleted after success, unless they are to be kept."""
    schedule, left_out = without_what_is_missing(wanted, mounts=small_disk.can_mount(), wadm="wadm" in cluster.pids)
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-{schedule.seed}-"))
    began = time.monotonic()
    outcome = await one_run(cluster, made_by, schedule, directory)
    if outcome.good and not keep:
        shutil.rmtree(directory, ignore_errors=True)
    return Run(schedule, left_out, outcome, directory, time.monotonic() - began)


def schedule_of(options: argparse.Namespace, seed: int) -> Schedule:
    """Return the schedule of a seed."""
    given = {"parts": options.parts, "faults": options.faults, "without": options.without}
    return make_schedule(seed, options.seconds, **given)


def again(options: argparse.Namespace) -> str:
    """Return what ``make chaos`` needs besides seed and seconds to make the same schedule."""
    given = {"--parts": options.parts, "--faults": options.faults, "--without": options.without}
    if given["--parts"] == tuple(WORK):
        del given["--parts"]
    text = " ".join(f"{option} {','.join(values)}" for option, values in given.items() if values)
    return f' ARGS="{text}"' if text else ""


def run_many(options: argparse.Namespace, seeds: list[int]) -> int:
    """Run seeds, so many at a time; return how many went wrong."""
    forking = multiprocessing.get_context("fork")
    todo: SimpleQueue[int | None] = forking.SimpleQueue()
    done: SimpleQueue[int] = forking.SimpleQueue()
    for seed in (*seeds, *[None] * options.jobs):
        todo.put(seed)

    def work() -> None:
        done.put(asyncio.run(run_all(options, iter(todo.get, None))))

    workers = [forking.Process(target=work) for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    ended = [worker.exitcode for worker in workers]
    assert not any(ended), f"workers ended with {ended}"
    return sum(done.get() for _ in workers)


def names(text: str) -> tuple[str, ...]:
    """Return what commas separate."""
    return tuple(part for part in text.split(",") if part)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what is to be done: what the command line says, unless something is given."""
    parser = argparse.ArgumentParser(description="Break the whole system on purpose, and see that it mends itself.")
    parser.add_argument("--seed", type=int, default=None, help="the first run's; the next ones count up")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each run's schedule is")
    parser.add_argument("--found", action="store_true", help="the seeds that found a fault once, as they did")
    parser.add_argument("--jobs", type=int, default=1, help="so many runs at a time")
    parser.add_argument("--parts", type=names, default=tuple(WORK), help="of the workload, with commas between")
    parser.add_argument("--faults", type=names, default=(), help="only these, with commas between")
    parser.add_argument("--without", type=names, default=(), help="none of these, with commas between")
    parser.add_argument("--record", type=Path, default=None, help="a file that gets a line for each run")
    parser.add_argument("--cluster", default="", help="a control plane that stays, made if it is not there")
    parser.add_argument("--keep", action="store_true", help="keep the logs of runs that went well, too")
    parser.add_argument("--show", action="store_true", help="print what would be done, and do nothing")
    options = parser.parse_args(given)
    if options.jobs > 1 and options.cluster:
        parser.error("--jobs: runs at a time have a control plane each, so --cluster is for one job")
    if options.found:
        options.seconds = SECONDS
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def main() -> int:
    """Run, or print the schedules."""
    options = arguments()
    seeds = FOUND if options.found else range(options.seed, options.seed + options.runs)
    if options.show:
        for seed in seeds:
            print(shown(schedule_of(options, seed)))
        return 0
    small_disk.have_own_mounts()
    wrong = run_many(options, list(seeds)) if options.jobs > 1 else asyncio.run(run_all(options, iter(seeds)))
    return 1 if wrong else 0


def shown(schedule: Schedule) -> str:
    """Return a schedule as text."""
    head = f"seed {schedule.seed}, {schedule.seconds:g} s, {schedule.servers} servers of NATS"
    return "\n  ".join([head, *map(str, schedule.steps)])


if __name__ == "__main__":
    sys.exit(main())
