"""kill -9 of a consuming process in the middle of its work, again and again: nothing is lost, little is repeated."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from support import consuming_process
from support.buses import Buses, eventually, eventually_async, opted_out
from support.consuming_process import WORKERS
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS

pytestmark = [pytest.mark.nats]

FACTS = 1000
KILLS = 3


async def consuming(buses: Buses, path: Path) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, consuming_process.__file__, buses.url, buses.cluster, str(path), stdout=PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        async for line in process.stdout:
            if line == b"consuming\n":
                return process
    raise AssertionError("it ended before it consumed")


async def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()


async def test_a_process_that_is_killed_in_mid_work_loses_nothing_and_repeats_what_was_in_work(
    buses: Buses, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    path = tmp_path / "done"
    names = [f"n{number}" for number in range(FACTS)]
    writer = buses.new("node_watcher")
    await writer.connect()
    process = await consuming(buses, path)
    saying = asyncio.gather(*(writer.publish(opted_out(name), dedup=f"{buses.cluster}/{name}") for name in names))
    for number in range(KILLS):
        # Anywhere in its share of the work, but not when there is nothing left to do.
        enough = random.randint(number * FACTS // (KILLS + 1) + 1, (number + 1) * FACTS // (KILLS + 1))
        await eventually(lambda: path.exists() and path.read_bytes().count(b"\n") >= enough, 60)  # noqa: B023
        await kill(process)
        assert path.read_bytes().count(b"\n") < FACTS, "else it was not in mid-work"
        process = await consuming(buses, path)
    await saying

    async def all_done() -> bool:
        info = await jetstream.consumer_info(STREAM_EVENTS, f"provisioner-nodes-{buses.cluster}")
        return not info.num_ack_pending and not info.num_pending

    await eventually_async(all_done, 60)
    await kill(process)
    worked = Counter(path.read_text().split())
    assert set(worked) == set(names)
    repeated = sum(worked.values()) - len(names)
    # In work at a kill: runs that wrote and whose acknowledgement was not yet on the wire. A write blocks the loop, so
    # that each worker may have ended one more run before the client had its turn to send.
    assert repeated <= KILLS * 2 * WORKERS
    dead = await jetstream.stream_info(STREAM_DEAD, subjects_filter=f"trellis.dead.{buses.cluster}.>")
    assert not dead.state.subjects
