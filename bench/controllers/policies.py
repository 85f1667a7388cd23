"""Policies for the suspension of controllers to disk.

``python bench/controllers/policies.py [--controllers N] [--state MB] [--hours H]``

In: nothing. Out: for each policy what an event waits for, what is held in memory on average, and the CPU time of
waking and suspending, on stdout with the machine. Time passes as in a simulation (arrivals in bursts, the same for
each policy), but every wake, call and suspend is really done and timed, with the guests of controller_host.
Policies: at once, after 30 s, never, by a budget of memory (longest unused first), and a predictor as the
literature on serverless has it: a histogram of each controller's intervals, suspended until shortly before the next
event is likely, kept until it is not.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))

import wasmtime

from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module, Modules
from controller_host.guest.snapshots import Identity, Snapshots
from machine import describe

MIB: Final = 2**20
TOUCHED: Final = 0.1
"""Of the pages of its state, written to by each call."""
BURST_EVERY: Final = 300.0
"""Seconds from a burst of one controller to its next, on average; half of the controllers are regular."""
BURST: Final = 8.0
"""Events of a burst, on average."""
GAP: Final = 0.2
"""Seconds from one event of a burst to the next, on average."""
REQUEST: Final = b'{"key":{"apiVersion":"v1","kind":"ConfigMap","namespace":"bench","name":"one"},"object":null}'
SEED: Final = 7

WAT: Final = """
(module
  (memory (export "memory") {pages})
  (global $calls (mut i32) (i32.const 0))
  (func $touch (param $step i32) (local $at i32)
    (local.set $at (i32.const 65536))
    (loop $next
      (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1)))
      (local.set $at (i32.add (local.get $at) (local.get $step)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const {bytes})))))
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "init") (param i32 i32) (result i64) (call $touch (i32.const 4)) (i64.const 0))
  (func (export "reconcile") (param i32 i32) (result i64)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (call $touch (i32.const {step}))
    (i64.const 0)))
"""


class Silent:
    """A host without requests."""

    def call(self, request: bytes) -> bytes:
        """Answer nothing."""
        raise NotImplementedError

    def log(self, level: int, text: str) -> None:
        """Drop it."""


@dataclass
class Intervals:
    """The idle times of a controller between its events, in bins of a second."""

    bins: list[int] = field(default_factory=lambda: [0] * 1200)
    seen: int = 0

    def add(self, seconds: float) -> None:
        """Count an interval."""
        self.bins[min(int(seconds), len(self.bins) - 1)] += 1
        self.seen += 1

    def percentile(self, share: float) -> float:
        """Return after how many seconds that share of the intervals is over."""
        wanted, sum_ = self.seen * share, 0
        for number, count in enumerate(self.bins):
            sum_ += count
            if sum_ >= wanted:
                return float(number + 1)
        return float(len(self.bins))


class Policy(Protocol):
    """The state of an instance after a call: ``keep`` seconds in memory; ``again``: woken after so many."""

    name: str
    budget: float

    def after(self, intervals: Intervals) -> tuple[float, float | None]:
        """Return ``keep`` and ``again``."""


@dataclass(frozen=True)
class Fixed:
    """The same for all."""

    name: str
    keep: float
    budget: float = math.inf

    def after(self, intervals: Intervals) -> tuple[float, float | None]:  # noqa: ARG002 - a policy that learns nothing
        """Return what it always is."""
        return self.keep, None


@dataclass(frozen=True)
class Predictor:
    """Gone until shortly before an event is likely, there until it is not; kept for 60 s while little is known."""

    name: str = "predictor"
    budget: float = math.inf
    known: int = 10
    worth: float = 2.0
    kept: float = 60.0

    def after(self, intervals: Intervals) -> tuple[float, float | None]:
        """Return when, by the intervals seen so far."""
        if intervals.seen < self.known:
            return self.kept, None
        early, late = intervals.percentile(0.05) * 0.9, intervals.percentile(0.99) * 1.1
        return (late, None) if early < self.worth else (0.0, early)


@dataclass
class Controller:
    """One controller, and where its instance is."""

    identity: Identity
    intervals: Intervals = field(default_factory=Intervals)
    instance: Instance | None = None
    used: float = 0.0
    bytes: int = 0
    turn: int = 0
    """Of what was planned for it, only the newest counts."""
    since_wake: int = 0


@dataclass
class World:
    """All controllers under one policy; time is the simulation's."""

    policy: Policy
    module: Module
    snapshots: Snapshots
    controllers: list[Controller]
    planned: list[tuple[float, int, str, int]] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)
    wakes: int = 0
    vain: int = 0
    spent: float = 0.0
    resident: int = 0
    area: float = 0.0
    now: float = 0.0
    peak: int = 0

    def advance(self, now: float) -> None:
        """Let time pass."""
        self.area += self.resident * (now - self.now)
        self.now = now

    def wake(self, controller: Controller) -> float:
        """Bring an instance back; returns the seconds it took."""
        if controller.instance is not None:
            return 0.0
        began = time.perf_counter()
        snapshot = self.snapshots.find(controller.identity)
        assert snapshot is not None
        controller.instance = Instance.wake(self.module, LIMITS, Silent(), snapshot)
        took = time.perf_counter() - began
        self.wakes += 1
        self.spent += took
        controller.since_wake = 0
        return took

    def suspend(self, controller: Controller) -> None:
        """Put an instance to disk."""
        if controller.instance is None:
            return
        began = time.perf_counter()
        controller.instance.suspend(self.snapshots, controller.identity)
        self.spent += time.perf_counter() - began
        controller.instance = None
        self.vain += not controller.since_wake
        self.account(controller, 0)

    def account(self, controller: Controller, size: int) -> None:
        """Note what an instance has in memory."""
        self.resident += size - controller.bytes
        controller.bytes = size
        self.peak = max(self.peak, self.resident)

    def event(self, controller: Controller) -> None:
        """Call a controller, and plan what becomes of it."""
        idle = self.now - controller.used
        waited = self.wake(controller)
        assert controller.instance is not None
        began = time.perf_counter()
        controller.instance.call("reconcile", REQUEST)
        took = waited + time.perf_counter() - began
        self.all.append(took)
        if idle > GAP * 20:
            self.first.append(took)
            controller.intervals.add(idle)
        controller.used, controller.since_wake = self.now, controller.since_wake + 1
        self.account(controller, controller.instance.resident_bytes())
        self.plan(controller)

    def plan(self, controller: Controller) -> None:
        """Plan the actions of the policy."""
        keep, again = self.policy.after(controller.intervals)
        controller.turn += 1
        index = self.controllers.index(controller) if keep < math.inf else -1
        if keep <= 0:
            self.suspend(controller)
        elif keep < math.inf:
            heapq.heappush(self.planned, (self.now + keep, index, "suspend", controller.turn))
        if again is not None:
            heapq.heappush(self.planned, (self.now + again, index, "wake", controller.turn))
        while self.resident > self.policy.budget:
            idle = [other for other in self.controllers if other.instance is not None and other is not controller]
            if not idle:
                break
            self.suspend(min(idle, key=lambda other: other.used))

    def due(self, until: float) -> None:
        """Do what was planned for before a time."""
        while self.planned and self.planned[0][0] <= until:
            at, index, what, turn = heapq.heappop(self.planned)
            controller = self.controllers[index]
            if turn != controller.turn:
                continue
            self.advance(at)
            if what == "suspend":
                self.suspend(controller)
                continue
            self.wake(controller)
            assert controller.instance is not None
            self.account(controller, controller.instance.resident_bytes())
            late = controller.intervals.percentile(0.99) * 1.1
            heapq.heappush(self.planned, (max(at, controller.used + late), index, "suspend", turn))


LIMITS: Final = Limits(memory_bytes=256 * MIB)


def arrivals(controllers: int, seconds: float) -> Iterator[tuple[float, int]]:
    """Yield times and controllers, in order: bursts of events, at random intervals, of every other one regular."""
    source = random.Random(SEED)
    found = []
    for number in range(controllers):
        every = BURST_EVERY * source.uniform(0.5, 1.5)
        at = source.uniform(0, every)
        while at < seconds:
            event = at
            for _ in range(1 + int(source.expovariate(1 / (BURST - 1)))):
                found.append((event, number))
                event += source.expovariate(1 / GAP)
            at = event + (every if number % 2 else source.expovariate(1 / every))
    return iter(sorted(found))


def run(policy: Policy, module: Module, folder: Path, options: argparse.Namespace) -> None:
    """Run a policy and print its figures."""
    snapshots = Snapshots(folder / "snapshots")
    world = World(policy, module, snapshots, [])
    for number in range(options.controllers):
        identity = Identity(f"controller-{number}", module.sha256, module.engine.key, "none")
        controller = Controller(identity)
        instance = controller.instance = Instance.boot(module, LIMITS, Silent())
        instance.call("init", b"{}")
        world.controllers.append(controller)
        if policy.budget < math.inf or not isinstance(policy, Fixed) or policy.keep < math.inf:
            world.suspend(controller)
        else:
            world.account(controller, instance.resident_bytes())
    world.spent, world.vain = 0.0, 0
    seconds = options.hours * 3600
    for at, number in arrivals(options.controllers, seconds):
        world.due(at)
        world.advance(at)
        world.event(world.controllers[number])
    for controller in world.controllers:
        if controller.instance is not None:
            controller.instance.close()
    snapshots.close()
    shown = [
        f"{statistics.median(took) * 1000:.2f}/{sorted(took)[int(len(took) * 0.99)] * 1000:.2f}"
        for took in (world.first, world.all)
    ]
    print(
        f"{policy.name:<22} first of a burst {shown[0]} ms, all {shown[1]} ms (p50/p99); "
        f"{world.area / world.now / MIB:.0f} MiB on average, {world.peak / MIB:.0f} at most; {world.wakes} wakes, "
        f"{world.vain} in vain; waking and suspending took {world.spent:.1f} s for {len(world.all)} events",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controllers", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--state", type=float, default=5.0, help="MB of state each (default 5)")
    parser.add_argument("--hours", type=float, default=2.0, help="of simulated time (default 2)")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    print(
        f"{options.controllers} controllers of {options.state:g} MB, each call writes to {TOUCHED:.0%} of its pages",
        flush=True,
    )
    size = int(options.state * 1e6)
    pages = -(-size // 65536)
    wat = WAT.format(pages=pages, bytes=pages * 65536 - 4, step=int(4096 / TOUCHED))
    half = options.controllers * size / 2
    policies: list[Policy] = [
        Fixed("at once", 0.0),
        Fixed("after 30 s", 30.0),
        Fixed(f"budget {half / MIB:.0f} MiB", 1e9, half),
        Fixed(f"budget {half / 5 / MIB:.0f} MiB", 1e9, half / 5),
        Fixed("never", math.inf),
        Predictor(),
    ]
    for policy in policies:
        with tempfile.TemporaryDirectory() as folder:
            modules = Modules(Path(folder) / "modules")
            run(policy, modules.load(bytes(wasmtime.wat2wasm(wat))), Path(folder), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
