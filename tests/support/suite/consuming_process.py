"""A process that consumes events through the queue and writes the name of each finished node into a file.

Run as a program by tests that kill it or cut it off: ``python consuming_process.py <nats url> <cluster> <file>``. It
says ``consuming`` once it does, and ``unavailable`` when it has noticed that the bus is. A name stands in the file,
safe from any crash, before its message is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

from trellis.bus.bus import Bus, BusTimings, Received
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.node import NodeOptedOut
from trellis.telemetry import TraceContext, setup
from trellis.telemetry.health import Health

SERVICE = "provisioner"
WORKERS = 8
WORK_SECONDS = 0.01
TIMING = BusTimings(check=0.5, ack_wait=3.0)


async def main(url: str, cluster: str, path: str) -> None:
    telemetry = setup(SERVICE)
    bus = Bus(
        url,
        cluster=cluster,
        cluster_uid=f"uid-of-{cluster}",
        service=SERVICE,
        telemetry=telemetry,
        health=Health(SERVICE),
        timings=TIMING,
    )
    done = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(name: str, _: TraceContext | None) -> None:
        await asyncio.sleep(WORK_SECONDS)
        os.write(done, f"{name}\n".encode())
        os.fsync(done)

    queue = KeyedQueue(workers=WORKERS, name="nodes", telemetry=telemetry)

    def handle(received: Received[NodeOptedOut]) -> None:
        queue.add(received.data.name, received.ack, received.trace)

    bus.subscribe("nodes", [NodeOptedOut], handle)
    await bus.connect()
    await bus.start()
    await asyncio.gather(queue.work(run), report(bus))


async def report(bus: Bus) -> None:
    """Say ``consuming`` and ``unavailable`` in turn."""
    while True:
        for line, connected in (("consuming", False), ("unavailable", True)):
            while bus.connected.is_set() is connected:  # noqa: ASYNC110 (that it is away has no event)
                await asyncio.sleep(0.05)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


async def consuming(url: str, cluster: str, path: Path, *, inside: Sequence[str] = ()) -> Process:
    """Start such a process, after a prefix of commands, and return it once it consumes."""
    process = await asyncio.create_subprocess_exec(
        *inside, sys.executable, __file__, url, cluster, str(path), stdout=PIPE
    )
    await wait_for_line(process, "consuming")
    return process


async def wait_for_line(process: Process, line: str) -> None:
    """Wait until it says this."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        async for printed in process.stdout:
            if printed.decode() == f"{line}\n":
                return
    raise AssertionError(f"it ended and never said {line}")


async def kill(process: Process) -> None:
    """End it as a crash does."""
    process.kill()
    await process.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
