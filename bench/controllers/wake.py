"""The time in which a suspended controller wakes, by its state: ``python bench/controllers/wake.py [--rounds N]``.

In: nothing; it makes guests of the sizes that the paper measured, all of whose pages are in use, suspends each to
disk and wakes it repeatedly, as controller_host does. Out: figures and the machine they were measured on, on
stdout; exit status 1 if a target is missed. A wake ends when the guest's own first instructions read the clock; it
includes finding the snapshot, an alloc and the call. The durations of touched pages and of written pages are
separate: both are given for 1,000 pages.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module, Modules
from controller_host.guest.pages import PAGE
from controller_host.guest.snapshots import Identity, Snapshots
from machine import describe
from support.guests import tape, wat

WASM_PAGE = 65536
LIMITS = Limits(memory_bytes=256 << 20, cpu_seconds=60, wall_seconds=60)
TARGET_P50 = 0.5
TOUCHED = 1_000

PAPER = {
    1.2: "10.6 / 13.7, 3.9 / 4.5",
    2.2: "",
    5.0: "35 / 45.6, 18 / 20.1",
    10.0: "47.5 / 75.9, 36.2 / 51.3",
    26.0: "85.5 / 172.7, 241 / 302",
    51.0: "121.7 / 234.5, 630 / 695",
    91.0: "180.3 / 290.9, 1,252 / 1,365",
}
"""Megabytes of state → p50 / p90 in ms of the prototype in the literature, by two methods."""


@dataclass(frozen=True)
class Bench:
    """A guest of one size and where it sleeps."""

    module: Module
    snapshots: Snapshots
    identity: Identity

    def wake(self) -> Instance:
        """Find its snapshot and wake it."""
        found = self.snapshots.find(self.identity)
        assert found is not None
        return Instance.wake(self.module, LIMITS, wat.RecordingHost(), found)

    def suspend(self, instance: Instance) -> float:
        """Return milliseconds."""
        return instance.suspend(self.snapshots, self.identity).seconds * 1000


def measured_wake(bench: Bench) -> tuple[float, Instance]:
    """Return the milliseconds until the guest's first instructions."""
    began = time.monotonic_ns()
    instance = bench.wake()
    return (tape.clock(instance) - began) / 1e6, instance


def wakes(bench: Bench, rounds: int) -> list[float]:
    figures = []
    for _ in range(rounds):
        figure, instance = measured_wake(bench)
        figures.append(figure)
        bench.suspend(instance)
    return sorted(figures)


def uncached_wake(bench: Bench) -> float:
    """Return the milliseconds if the kernel has nothing of the file in memory."""
    path = bench.snapshots.path(bench.identity.controller_uid)
    figures = []
    for _ in range(5):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        figure, instance = measured_wake(bench)
        figures.append(figure)
        bench.suspend(instance)
    return statistics.median(figures)


def a_thousand_pages(bench: Bench) -> tuple[float, float]:
    """Return the milliseconds that touching 1,000 pages, and writing them back, adds."""
    size = bench.snapshots.find(bench.identity)
    assert size is not None
    pages = min(TOUCHED, size.memory_bytes // PAGE - 64)
    commands = [(tape.STORE, 2 * WASM_PAGE + at * PAGE, at) for at in range(pages)]
    touching, writing = [], []
    for _ in range(15):
        instance = bench.wake()
        tape.do(instance)
        first = timed(instance, commands)
        again = timed(instance, commands)
        touching.append((first - again) * TOUCHED / pages)
        all_written = bench.suspend(instance)
        instance = bench.wake()
        tape.do(instance)
        writing.append((all_written - bench.suspend(instance)) * TOUCHED / pages)
    return statistics.median(touching), statistics.median(writing)


def timed(instance: Instance, commands: Sequence[tape.Command]) -> float:
    began = time.perf_counter()
    tape.do(instance, *commands)
    return (time.perf_counter() - began) * 1000


def percentile(figures: Sequence[float], share: float) -> float:
    return figures[min(len(figures) - 1, int(len(figures) * share))]


def measure(modules: Modules, snapshots: Snapshots, megabytes: float, rounds: int) -> bool:
    """Print the figures of one size; return whether the target is met."""
    memory = max(3, round(megabytes * 1e6 / WASM_PAGE))
    module = tape.module(modules, memory)
    uid = f"mb-{megabytes:g}".replace(".", "-")
    bench = Bench(module, snapshots, Identity(uid, module.sha256, modules.engine.key, "bench"))
    instance = tape.boot(module, LIMITS)
    instance.guest.memory.write(2 * WASM_PAGE, os.urandom((memory - 2) * WASM_PAGE))
    first = bench.suspend(instance)
    wakes(bench, 20)
    figures = wakes(bench, rounds)
    touching, writing = a_thousand_pages(bench)
    p50, p90, p99 = (percentile(figures, share) for share in (0.5, 0.9, 0.99))
    print(
        f"{megabytes:>5g} MB  wake p50 {p50:.2f} p90 {p90:.2f} p99 {p99:.2f} ms (not cached {uncached_wake(bench):.2f})"
        f"; 1,000 pages: touched {touching:.2f}, written back {writing:.2f} ms; first time to disk {first:.1f} ms"
        f"; the paper's {PAPER[megabytes] or 'none'}"
    )
    return p50 <= TARGET_P50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500, help="wakes of each size")
    arguments = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as directory:
        modules = Modules(Path(directory) / "modules")
        snapshots = Snapshots(Path(directory) / "snapshots")
        met = [measure(modules, snapshots, megabytes, arguments.rounds) for megabytes in PAPER]
        snapshots.close()
    print(f"target: p50 of at most {TARGET_P50} ms at every size: {'met' if all(met) else 'MISSED'}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
