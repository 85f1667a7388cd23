"""CPU time of following many lattices of one NATS: ``python bench/storage.py [--lattices N] [--applications N]``.

In: nothing; it starts a NATS of its own and writes into it what wadm would. Out: messages and processor time until all
lattices are known, for one change of one application, and of a second in which nothing changes, on stdout with the
machine. No wadm runs: only the reads of its storage are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nats
from nats.js.api import KeyValueConfig
from nats.js.kv import KeyValue

from application_manager.lattice_followers import LatticeFollowers
from machine import describe
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.store import ModelStore
from trellis.lattice.domain.subjects import CONTROL_PREFIX
from trellis.telemetry import setup_logging
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK, free_ports

BUCKET: Final = "wadm_manifests"
CHANGES: Final = 50
IDLE_SECONDS: Final = 20.0
WAIT_SECONDS: Final = 600.0


def entry(name: str, version: str) -> bytes:
    """Return an application as wadm keeps it."""
    metadata = {"name": name, "annotations": {"version": version}}
    server = {"name": "server", "type": "capability", "properties": {"image": "example.com/server:1"}}
    manifest: dict[str, Any] = {"metadata": metadata, "spec": {"components": [server]}}
    manifest |= {"apiVersion": "core.oam.dev/v1beta1", "kind": "Application"}
    return json.dumps({"manifests": {version: manifest}, "deployed_version": version}).encode()


def messages(port: int) -> int:
    """Return how many messages the server took from the follower and sent to it."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/connz?limit=1024", timeout=10) as answer:
        found = json.load(answer)["connections"]
    return sum(int(item["in_msgs"]) + int(item["out_msgs"]) for item in found if item.get("name") != "bench")


@dataclass(frozen=True, slots=True)
class Moment:
    """The use and the messages up to a moment, or between two."""

    at: float
    processor: float
    messages: float

    @classmethod
    def of(cls, port: int) -> Moment:
        """Return what there was up to now."""
        return cls(time.monotonic(), time.process_time(), messages(port))

    def less(self, former: Moment) -> Moment:
        """Return what there was since a moment."""
        return Moment(self.at - former.at, self.processor - former.processor, self.messages - former.messages)

    def shown(self, parts: float) -> str:
        """Return the share of one part."""
        return f"{self.messages / parts:8.1f} messages, {self.processor / parts * 1000:.1f} ms of a processor"


async def until(check: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not check():  # noqa: ASYNC110 (there is nobody who would tell)
            await asyncio.sleep(0.02)
    print(f"    … {what}", file=sys.stderr, flush=True)


async def write(kv: KeyValue, lattices: int, applications: int) -> dict[str, str]:
    """Write applications as wadm does; return the lattice of each."""
    names = [f"l{number:03d}" for number in range(lattices)]
    of = {f"a{number:04d}": names[number * lattices // applications] for number in range(applications)}
    for name, lattice in of.items():
        await kv.put(f"{lattice}-{name}", entry(name, "v1"))
    for lattice in names:
        await kv.put(lattice, json.dumps([name for name, its in of.items() if its == lattice]).encode())
    return of


async def known(followers: LatticeFollowers, lattices: int) -> None:
    """Wait until everything of all lattices is known."""

    def all_synced() -> bool:
        stores = followers.stores.values()
        return len(stores) == lattices and all(store.synced_at is not None for store in stores)

    await until(all_synced, "all are known")


async def change(kv: KeyValue, followers: LatticeFollowers, of: dict[str, str]) -> None:
    """Change applications one after the other, each when the last one was seen."""
    names = list(of)
    for number in range(CHANGES):
        name = names[number * len(names) // CHANGES]
        await kv.put(f"{of[name]}-{name}", entry(name, "v2"))
        store = followers.stores[of[name]]

        def seen(store: ModelStore = store, name: str = name) -> bool:
            found = store.find(name)
            return found is not None and found.deployed == "v2"

        await until(seen, f"{name} is seen")


async def measure(server: NatsServer, port: int, lattices: int, applications: int) -> None:
    client = await nats.connect(server.url, name="bench")
    kv = await client.jetstream().create_key_value(KeyValueConfig(bucket=BUCKET, history=1))
    of = await write(kv, lattices, applications)
    followers = LatticeFollowers(lambda *_: None, "bench")
    running = asyncio.create_task(followers.run())
    began = Moment.of(port)
    for lattice in sorted(set(of.values())):
        await followers.follow(lattice, LatticeAddress(NatsAddress(server.url), lattice, CONTROL_PREFIX))
    await known(followers, lattices)
    print(f"{applications} applications on {lattices} lattices:")
    print(f"  until all are known   {Moment.of(port).less(began).shown(1)}")
    await asyncio.sleep(IDLE_SECONDS)
    idle = Moment.of(port)
    await asyncio.sleep(IDLE_SECONDS)
    resting = Moment.of(port).less(idle)
    print(f"  a second of nothing   {resting.shown(resting.at)}")
    began = Moment.of(port)
    await change(kv, followers, of)
    done = Moment.of(port).less(began)
    share = done.at / resting.at
    changed = Moment(done.at, done.processor - resting.processor * share, done.messages - resting.messages * share)
    print(f"  one change            {changed.shown(CHANGES)}", flush=True)
    running.cancel()
    await asyncio.wait({running})
    await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lattices", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--applications", type=int, default=1000, help="of all together (default 1000)")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    setup_logging(log_format="text", level="error")
    with tempfile.TemporaryDirectory() as folder:
        (port,) = free_ports(1)
        config = Path(folder) / "nats.conf"
        config.write_text(f'http: "{LOOPBACK}:{port}"\n')
        with NatsServer(Path(folder) / "nats", config=config) as server:
            asyncio.run(measure(server, port, options.lattices, options.applications))
    return 0


if __name__ == "__main__":
    sys.exit(main())
