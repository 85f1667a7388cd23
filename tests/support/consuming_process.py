"""A process that consumes facts through the queue and writes the name of each finished node into a file.

Run as a program by tests that kill it: ``python consuming_process.py <nats url> <cluster> <file>``. Once it consumes it
says ``consuming``. A name stands in the file, safe from any crash, before its message is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys

from trellis.bus.bus import Bus, Received, Timing
from trellis.bus.queue import KeyedQueue
from trellis.events.node import NodeOptedOut
from trellis.health import Health
from trellis.telemetry import TraceContext, setup

SERVICE = "provisioner"
WORKERS = 8
WORK_SECONDS = 0.01
TIMING = Timing(check=0.5, ack_wait=3.0)


async def main(url: str, cluster: str, path: str) -> None:
    telemetry = setup(SERVICE)
    bus = Bus(
        url,
        cluster=cluster,
        cluster_uid=f"uid-of-{cluster}",
        service=SERVICE,
        telemetry=telemetry,
        health=Health(SERVICE),
        timing=TIMING,
    )
    done = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(name: str, _: TraceContext | None) -> None:
        await asyncio.sleep(WORK_SECONDS)
        os.write(done, f"{name}\n".encode())
        os.fsync(done)

    queue = KeyedQueue(run, workers=WORKERS, name="nodes", telemetry=telemetry)

    def handle(received: Received[NodeOptedOut]) -> None:
        queue.add(received.fact.name, received.ack, received.trace)

    bus.subscribe("nodes", [NodeOptedOut], handle)
    await bus.connect()
    await bus.start()
    sys.stdout.write("consuming\n")
    sys.stdout.flush()
    await queue.work()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
