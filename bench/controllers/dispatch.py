"""CPU time of one change with ten thousand controllers, and memory of an object.

Controllers select by namespace, by a label, or everything; the same changes go through the index of
``controller_host`` and, for comparison, past each controller one by one. No server: the time is this process' own.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from controller_host.domain.keys import ObjectKey
from controller_host.domain.watch_specs import Term, WatchSpec
from controller_host.timings import CacheTimings
from controller_host.watches.cached_kind import CachedKind, CachedObject, project
from machine import describe
from trellis.kube.discovery import Discovery
from trellis_dev.fakes.fake import FakeKube

CONTROLLERS = (100, 1_000, 10_000)
CHANGES = 2_000
ROUNDS = 5
OBJECTS = 10_000
KIND = ("v1", "ConfigMap")


def specs(distinguished_by: str, number: int) -> WatchSpec:
    """Return what one of many controllers watches."""
    match distinguished_by:
        case "namespace":
            return WatchSpec(*KIND, (f"team-{number}",))
        case "label":
            return WatchSpec(*KIND, None, (Term("app", (f"app-{number}",)), Term("team", ("shop",))))
        case _:
            return WatchSpec(*KIND, None)


def held(number: int, version: int) -> CachedObject:
    """Return an object that concerns one controller, where they select different objects."""
    labels = {"app": f"app-{number}", "team": "shop", "tier": "web"}
    return CachedObject(f"uid-{number}", str(version), labels, b"")


def microseconds(kind: CachedKind, controllers: int) -> float:
    """Return the time of one change, the median of some rounds."""
    rounds = []
    for version in range(ROUNDS):
        began = time.perf_counter()
        for change in range(CHANGES):
            number = change * 7919 % controllers
            kind._notify(f"team-{number}", "x", held(number, version), held(number, version + 1))  # noqa: SLF001
        rounds.append((time.perf_counter() - began) / CHANGES * 1e6)
    return statistics.median(rounds)


def one_by_one(wanted: list[WatchSpec], controllers: int) -> float:
    """Return the time of one change if each controller is compared with it."""
    changes = max(2, 200_000 // controllers)
    began = time.perf_counter()
    for change in range(changes):
        number = change * 7919 % controllers
        labels = held(number, 0).labels
        sum(1 for spec in wanted if spec.means(f"team-{number}", labels))
    return (time.perf_counter() - began) / changes * 1e6


def cached(notify: Callable[[str, ObjectKey], None]) -> CachedKind:
    """Return a cache of a kind without a server."""
    kube = FakeKube()
    return CachedKind(KIND, kube, Discovery(kube), CacheTimings(), notify, lambda _: None)


def dispatch() -> None:
    """Print the CPU time of one change."""
    for distinguished_by in ("namespace", "label", "nothing"):
        for controllers in CONTROLLERS:
            notified: list[str] = []
            kind = cached(lambda controller, _, notified=notified: notified.append(controller))  # type: ignore[misc]
            wanted = [specs(distinguished_by, number) for number in range(controllers)]
            for number, spec in enumerate(wanted):
                kind.watch_index.add(f"team-{number}/c", spec)
            index = microseconds(kind, controllers)
            each = one_by_one(wanted, controllers)
            concerned = len(notified) / (ROUNDS * CHANGES)
            print(
                f"{controllers:6} controllers by {distinguished_by:9}: {index:9.1f} µs a change, "
                f"{concerned:8.0f} notified; compared one by one {each:10.1f} µs"
            )
            notified.clear()


def memory() -> None:
    """Print the memory of an object beside its JSON."""
    fields = {"f:data": {f"f:key-{number}": {} for number in range(20)}}
    manifests = [
        {
            "metadata": {
                "name": f"settings-{number}",
                "namespace": f"team-{number % 100}",
                "uid": f"00000000-0000-0000-0000-{number:012}",
                "resourceVersion": str(number),
                "labels": {"app": f"app-{number % 50}", "team": "shop"},
                "managedFields": [{"manager": "kubectl", "fieldsV1": fields}],
            },
            "data": {f"key-{i}": "x" * 40 for i in range(20)},
        }
        for number in range(OBJECTS)
    ]
    source = [json.dumps(manifest) for manifest in manifests]
    sent = sum(map(len, source)) / OBJECTS
    del manifests
    tracemalloc.start()
    began = time.perf_counter()
    objects = [project(KIND, json.loads(item)) for item in source]
    took = (time.perf_counter() - began) / OBJECTS * 1e6
    size = tracemalloc.get_traced_memory()[0] / OBJECTS
    tracemalloc.stop()
    body = sum(len(item.body) for item in objects) / OBJECTS
    print(
        f"{OBJECTS} objects of {sent:.0f} bytes as sent: {body:.0f} bytes as held, {size:.0f} bytes of memory each, "
        f"{took:.0f} µs to read and hold one (traced)"
    )


async def main() -> int:
    """Run both parts."""
    print(describe())
    dispatch()
    memory()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
