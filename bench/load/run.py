"""The resources of Trellis as a cluster grows: ``python bench/load/run.py [--share N …] [--separate] [--record]``.

In: nothing; it starts a control plane with simulated nodes, two NATS servers and a real wadm of its own, and all
services in one process. Out: figures of each size, on stdout with the machine; with ``--record`` as lines of
``results.jsonl``, of which ``page.py`` makes docs/operations/scale.md. The sizes are eighths, quarters … of 5,000
nodes, 1,000 applications on 100 lattices, and 1,000 controllers in Wasm; the world grows from one to the next, and
Trellis is restarted at each size: the first start finds new objects, the second one none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from load import results, sizes, tables
from load.bundle import Bundle, Count, running, until_ready
from load.changes import CHANGES, OF, one_after_another
from load.measuring import measure
from load.results import Changed, Result, append, commit
from load.seen import until
from load.sizes import FULL, SHARES, Size
from load.world import World, world
from machine import describe
from trellis.lattice.timings import LatticeTimings

COUNT: Final = 60
IDLE_SECONDS: Final = 60.0
"""The longest interval of what Trellis does without a change, except comparisons that are minutes apart."""
_STILL: Final = 4
"""Looks, half a second apart, at queues in which nothing waits: then a start is over."""
_START_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.05
"""Interval of the checks, which use CPU time, too."""
_FOLLOWS_SECONDS: Final = {"application": 22.0}
_SOON_SECONDS: Final = 3.0
"""Time for the effects of the last change: deletions of ended Jobs, writes of statuses. The status of another version
is requested from wadm after 20 s."""


def log(text: str) -> None:
    print(f"    … {text}", file=sys.stderr, flush=True)


async def settled(made: World, bundle: Bundle) -> dict[str, float]:
    """Wait until all requested objects exist; return when they did, in seconds from the process' start."""
    size, seen = made.size, made.seen
    wanted: dict[str, tuple[int, Callable[[], int]]] = {
        "nodes": (size.nodes, lambda: len(seen.labelled - made.spares)),
        "slices": (
            size.applications,
            lambda: sum(bool(found) for name, found in seen.slices.items() if sizes.is_application(name)),
        ),
        "applications": (size.applications, lambda: sum(map(bool, seen.bases.values()))),
        "controllers": (size.controllers, lambda: len(seen.controllers)),
    }

    async def one(what: str, number: int, there: Callable[[], int]) -> tuple[str, float]:
        await until(lambda: there() >= number, lambda: f"{there()} of {number} {what}", pause=_LOOK_SECONDS)
        took = time.monotonic() - bundle.began
        log(f"{number} {what} after {took:.1f} s")
        return what, round(took, 2)

    return dict(await asyncio.gather(*(one(what, *how) for what, how in wanted.items())))


async def quiet(bundle: Bundle) -> float:
    """Wait until nothing waits for work; return when that was, in seconds from the process' start."""
    still, since = 0, 0.0
    async with asyncio.timeout(_START_SECONDS):
        while still < _STILL:
            waiting = await asyncio.to_thread(bundle.waiting)
            still, since = (still + 1, since or time.monotonic()) if not waiting else (0, 0.0)
            await asyncio.sleep(0.5)
    return round(since - bundle.began, 2)


async def measured(made: World, bundle: Bundle, idle: Count) -> dict[str, Changed]:
    """Make changes of each kind; what goes on anyway is taken off."""
    found, alone = {}, []
    for kind, change in CHANGES.items():
        if not getattr(made.size, OF[kind]):
            continue
        former = await asyncio.to_thread(bundle.count)
        took, requests = await one_after_another(made, change, COUNT)
        alone += requests
        opted_in = [name for name in made.spares if name in made.seen.jobs]
        await until(lambda: made.seen.labelled.issuperset(opted_in), lambda: "all opted-in nodes are labelled")  # noqa: B023
        await asyncio.sleep(_FOLLOWS_SECONDS.get(kind, _SOON_SECONDS))
        await quiet(bundle)
        done = (await asyncio.to_thread(bundle.count)).since(former)
        share = done.at / idle.at
        processor, messages = done.processor - idle.processor * share, done.messages - idle.messages * share
        found[kind] = Changed.of(took, max(0.0, processor), dict(done.writes), max(0.0, messages))
        log(f"{kind}: {found[kind]}")
    if alone:
        found[tables.REQUEST] = Changed.of(alone, 0.0, {}, 0.0)
        log(f"{tables.REQUEST}: {found[tables.REQUEST]}")
    return found


async def one_size(made: World, share: Fraction, options: argparse.Namespace, directory: Path) -> Result:
    """Grow the world to a share of the whole, and measure."""
    former, size = made.size, options.full.of(share)
    described, began = describe(), time.monotonic()
    await made.grow(size, [sizes.spare(share, number) for number in range(COUNT)])
    log(f"{size}: asked for in {time.monotonic() - began:.0f} s")
    environment = made.environment(directory)
    with running(environment, directory, made.monitors, separate=options.separate) as bundle:
        ready = await asyncio.to_thread(until_ready, bundle)
        times = await settled(made, bundle)
        times["all"] = await quiet(bundle)
        work = await asyncio.to_thread(bundle.count)
        steady, peak = bundle.memory()
    with running(environment, directory, made.monitors, separate=options.separate) as bundle:
        again = {"ready": round(await asyncio.to_thread(until_ready, bundle), 2), "quiet": await quiet(bundle)}
        # Hosts of which nothing is heard are said to be silent after a while, which no change here is the reason of.
        missing_in = bundle.began + LatticeTimings().silence - time.monotonic()
        await asyncio.sleep(max(0.0, missing_in) + options.idle / 3)
        before = await asyncio.to_thread(bundle.count)
        again |= {"processor": round(before.processor, 2), "messages": before.messages}
        await asyncio.sleep(options.idle)
        idle = (await asyncio.to_thread(bundle.count)).since(before)
        rested = bundle.memory()[0]
        log(f"ready {ready:.1f} s, again {again}; {steady:.0f} MiB, peak {peak:.0f}, again {rested:.0f}; idle {idle}")
        changes = await measured(made, bundle, idle)
        most = bundle.memory()[1]
    added = Size(*(getattr(size, name) - getattr(former, name) for name in Size.__dataclass_fields__))
    return Result(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        commit=commit(),
        machine=described,
        alone=options.alone,
        separate=options.separate,
        size=size,
        added=added,
        ready=round(ready, 2),
        settled=times,
        again=again,
        memory={"steady": round(rested, 1), "worked": round(steady, 1), "peak": round(max(peak, most), 1)},
        work={"processor": round(work.processor, 2), "writes": sum(work.writes.values()), "messages": work.messages},
        idle={
            "processor": round(idle.processor / idle.at, 4),
            "writes": round(sum(idle.writes.values()) / idle.at, 3),
            "messages": round(idle.messages / idle.at, 2),
        },
        changes=changes,
    )


async def run(options: argparse.Namespace, directory: Path) -> None:
    """Measure each share, from the smallest on."""
    async with world(options.full, directory) as made:
        for share in sorted(options.share or SHARES):
            result = await one_size(made, share, options, directory)
            print(json.dumps({"size": str(result.size), **_figures(result)}, indent=1), flush=True)
            if options.record is not None:
                append(options.record, result)


def _figures(result: Result) -> dict[str, object]:
    names = ("ready", "settled", "again", "memory", "work", "idle")
    return {name: getattr(result, name) for name in names} | {
        kind: f"p50 {item.p50 * 1000:.0f} ms, p99 {item.p99 * 1000:.0f} ms, {item.processor * 1000:.0f} ms of a "
        f"processor, {item.writes:g} writes {item.written}, {item.messages:g} messages"
        for kind, item in result.changes.items()
    }


def _size(text: str) -> Size:
    return Size(*map(int, text.split(",")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=Fraction, action="append", help="1/8 …; several may be given (default all)")
    parser.add_argument("--full", type=_size, default=FULL, help="NODES,APPLICATIONS,LATTICES,CONTROLLERS of share 1")
    parser.add_argument("--separate", action="store_true", help="each service in a process of its own")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help=f"seconds of idling ({IDLE_SECONDS:g})")
    parser.add_argument("--alone", action="store_true", help="the machine does nothing else: this is to be shown")
    parser.add_argument("--record", type=Path, nargs="?", const=results.FILE, help="add lines to a file")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args()
    measure("load", lambda directory: run(options, directory), keep=options.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
