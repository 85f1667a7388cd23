"""The delay from a change to a handler, and the resources of a list of 5,000 Nodes: informers of Trellis and client-go.

It starts a control plane of its own, with Nodes as large as real ones and no other writer. Both informers
watch the same objects of the same server while the same process writes the same changes, one informer after the other
and in turns, so that neither takes processor time from the other. A change carries the time just before it was sent.
The peer is compiled from ``bench/peers/clientgo``; without Go it is omitted, with a message.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from machine import describe
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.resources import NODES
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo, kill, local_cluster
from trellis_dev.localcluster.nodes import node_name
from watch_parts import HERE, Process, build_peer, note, process, real_node

RATES = {50: 1_000, 500: 5_000}
"""Changes a second, and how many of them in a round."""
ROUNDS = 3
WATCHED = 100
TARGET = 2.0
IN_FLIGHT = 40
QUIET = ("kube-controller-manager", "kube-scheduler", "kwok")
"""Other writers of Nodes, which are disabled."""
OURS, PEER = "trellis", "client-go"
Commands = dict[str, list[str]]


@contextlib.asynccontextmanager
async def nodes_of_our_own(count: int) -> AsyncIterator[tuple[ClusterInfo, Kube, list[str]]]:
    """A control plane with so many large Nodes that only the benchmark writes."""
    async with local_cluster() as info:
        for component in QUIET:
            await asyncio.to_thread(kill, info.name, component)
        kube = await Kube.connect(Access(Path(info.kubeconfig)), telemetry=setup("bench"), health=Health("bench"))
        names = [node_name(index) for index in range(count)]
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def create(name: str) -> None:
            async with gate:
                await kube.create(NODES, real_node(name))

        await asyncio.gather(*map(create, names))
        await asyncio.sleep(3)  # the server settles
        note(f"{count} Nodes made")
        try:
            yield info, kube, names
        finally:
            await kube.close()


def watchers(info: ClusterInfo, peer: Path | None) -> Commands:
    found = {OURS: [sys.executable, str(HERE / "watch_roles.py"), "watch", info.kubeconfig]}
    return found | ({PEER: [str(peer), info.kubeconfig]} if peer else {})


def percentiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3)}


async def latency(peer: Path | None, rates: dict[int, int], rounds: int) -> list[dict[str, Any]]:
    """Measure watch event → handler at each rate, the informers in turns."""
    samples: dict[tuple[int, str], list[dict[str, Any]]] = {}
    async with nodes_of_our_own(WATCHED) as (info, _, names):
        role = [sys.executable, str(HERE / "watch_roles.py"), "write", info.kubeconfig]
        commands = watchers(info, peer)
        async with process(role) as writer:
            for number in range(rounds):
                # Whoever is first in one round is last in the next.
                turns = list(commands.items())[:: 1 if number % 2 == 0 else -1]
                for rate, count in rates.items():
                    for name, command in turns:
                        found = await one_round(writer, command, (rate, count), names)
                        samples.setdefault((rate, name), []).append(found)
                        note(f"round {number + 1}: {name} at {rate} changes/s")
    return [summary(rate, name, found) for (rate, name), found in samples.items()]


async def one_round(writer: Process, command: list[str], load: tuple[int, int], names: list[str]) -> dict[str, Any]:
    rate, count = load
    async with process(command) as watcher:
        await watcher.ask("list")
        await writer.ask(200, 2 * len(names), *names)  # warm: connections, caches, compiled code
        await asyncio.sleep(0.5)
        await watcher.ask("report")
        used = watcher.processor_seconds()
        written = (await writer.ask(rate, count, *names))["written"]
        await asyncio.sleep(1)
        used = watcher.processor_seconds() - used
        seen = {(node, sent): handled for node, sent, handled in (await watcher.ask("report"))["seen"]}
    answered = {(node, sent): at for node, sent, at in written}
    took = (max(answered.values()) - min(sent for _, sent in answered)) / 1e9
    return {
        "from_sent": [(seen[key] - key[1]) / 1e6 for key in answered if key in seen],
        "from_answer": [(seen[key] - at) / 1e6 for key, at in answered.items() if key in seen],
        "missed": len(answered.keys() - seen.keys()),
        "rate": len(answered) / took,
        "processor": used / len(answered) * 1e6,
    }


def summary(rate: int, name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "informer": name,
        "asked_per_second": rate,
        "written_per_second": round(statistics.mean(item["rate"] for item in found), 1),
        "changes": sum(len(item["from_sent"]) for item in found),
        "missed": sum(item["missed"] for item in found),
        "sent_to_handler_ms": percentiles([value for item in found for value in item["from_sent"]]),
        "answered_to_handler_ms": percentiles([value for item in found for value in item["from_answer"]]),
        "processor_us_per_change": round(statistics.mean(item["processor"] for item in found), 1),
    }


async def lists(peer: Path | None, count: int, rounds: int) -> list[dict[str, Any]]:
    """Measure the first and the second list of many Nodes: time, and memory above what the process had before."""
    found: dict[str, list[dict[str, Any]]] = {}
    async with nodes_of_our_own(count) as (info, kube, names):
        size = len(json.dumps(await kube.get(NODES, names[0]), separators=(",", ":")))
        for _ in range(rounds):
            for name, command in watchers(info, peer).items():
                async with process(command) as watcher:
                    await asyncio.sleep(0.5)
                    idle = watcher.resident()
                    row: dict[str, Any] = {}
                    for what in ("list", "relist"):
                        watcher.forget_peak()
                        used = watcher.processor_seconds()
                        measured = await watcher.ask(what)
                        row |= {f"{what}_seconds": measured["seconds"], f"{what}_peak_mib": watcher.peak() - idle}
                        row[f"{what}_processor"] = watcher.processor_seconds() - used
                        await asyncio.sleep(1)
                    row["held_mib"] = watcher.resident() - idle
                    row["idle_mib"] = idle
                    found.setdefault(name, []).append(row | {"accept": measured.get("accept", "")})
                    note(f"{name} listed {count} Nodes twice")
    return [
        {"informer": name, "objects": count, "bytes_each": size}
        | {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0] if key != "accept"}
        for name, rows in found.items()
    ]


def show(results: dict[str, Any]) -> None:
    print(results["machine"])
    for row in results["latency"]:
        sent, answered = row["sent_to_handler_ms"], row["answered_to_handler_ms"]
        print(
            f"{row['informer']:<10} {row['asked_per_second']:>4}/s (written {row['written_per_second']:.0f}/s)  "
            f"sent → handler p50 {sent['p50']:.2f} ms, p99 {sent['p99']:.2f} ms;  "
            f"answered → handler p50 {answered['p50']:.2f} ms, p99 {answered['p99']:.2f} ms;  "
            f"{row['processor_us_per_change']:.0f} µs of processor a change;  missed {row['missed']}"
        )
    for row in results["lists"]:
        print(
            f"{row['informer']:<10} {row['objects']} Nodes of {row['bytes_each']} B  "
            f"first list {row['list_seconds']:.2f} s, {row['list_processor']:.2f} s of processor, peak "
            f"{row['list_peak_mib']:.1f} MiB;  again {row['relist_seconds']:.2f} s, {row['relist_processor']:.2f} s of "
            f"processor, peak {row['relist_peak_mib']:.1f} MiB;  "
            f"held {row['held_mib']:.1f} MiB above {row['idle_mib']:.1f} MiB idle"
        )
    for what, ratio in results["ratios"].items():
        print(f"{what:<40} {ratio:.2f} × client-go (target ≤ {TARGET:g})")


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The figure of Trellis divided by that of the peer, if there is one."""
    by = {(row["asked_per_second"], row["informer"]): row["sent_to_handler_ms"] for row in rows}
    return {
        f"sent → handler {share} at {rate}/s": round(by[rate, OURS][share] / by[rate, PEER][share], 2)
        for rate, name in by
        if name == OURS and (rate, PEER) in by
        for share in ("p50", "p99")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--nodes", type=int, default=5_000, help="for the lists; 0 leaves them out")
    parser.add_argument("--rates", type=int, nargs="*", default=list(RATES), help="changes a second")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    machine = describe()
    with tempfile.TemporaryDirectory() as folder:
        peer = build_peer(Path(folder))
        rates = {rate: RATES.get(rate, rate * 10) for rate in arguments.rates}
        rows = asyncio.run(latency(peer, rates, arguments.rounds)) if rates else []
        listed = asyncio.run(lists(peer, arguments.nodes, arguments.rounds)) if arguments.nodes else []
    machine = f"{machine} before, {os.getloadavg()[0]:.1f} after"
    results = {"machine": machine, "latency": rows, "lists": listed, "ratios": ratios(rows)}
    if arguments.json:
        print(json.dumps(results))
    else:
        show(results)


if __name__ == "__main__":
    main()
