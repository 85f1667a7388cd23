"""Publishes heartbeats of hosts of wasmCloud v2 at a rate: ``python bench/v2_heartbeats.py URL RATE SECONDS HOSTS``.

In: the address of a NATS server, heartbeats per second, seconds, number of hosts. Out: on stdout a JSON object with the
number of published heartbeats and the seconds that they took. Run by ``bench/v2.py`` in a process of its own, so that
its work is not the one of what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import nats

from trellis.v2.messages import HEARTBEATS
from v2_objects import host_id, make_heartbeat

TICK = 0.01


async def publish(url: str, rate: int, seconds: float, hosts: int) -> tuple[int, float]:
    """Publish in turns for the hosts; return the number of heartbeats and the seconds."""
    beats = [
        (f"{HEARTBEATS}.{host_id(number)}", json.dumps(make_heartbeat(number, 5), separators=(",", ":")).encode())
        for number in range(hosts)
    ]
    client = await nats.connect(url)
    total, published, started = int(rate * seconds), 0, time.monotonic()
    try:
        while published < total:
            due = min(total, int((time.monotonic() - started) * rate))
            for number in range(published, due):
                await client.publish(*beats[number % hosts])
            published = max(published, due)
            await asyncio.sleep(TICK)
        await client.flush()
    finally:
        await client.close()
    return published, time.monotonic() - started


if __name__ == "__main__":
    url_, rate_, seconds_, hosts_ = sys.argv[1:]
    count, took = asyncio.run(publish(url_, int(rate_), float(seconds_), int(hosts_)))
    print(json.dumps({"published": count, "seconds": took}))
