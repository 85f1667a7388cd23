"""A consuming process is killed in mid-work, again and again, or cut off: nothing is lost, little is repeated."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from support.nats.buses import Buses, eventually, eventually_async, opted_out
from support.suite.consuming_process import WORKERS, consuming, kill, wait_for_line
from support.suite.network import cable
from support.suite.tcp_proxy import TcpProxy
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.thorough]

EVENTS = 1000
KILLS = 3


async def test_a_process_that_is_killed_in_mid_work_loses_nothing_and_repeats_what_was_in_progress(
    buses: Buses, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    path = tmp_path / "done"
    names = [f"n{number}" for number in range(EVENTS)]
    writer = buses.new("node_watcher")
    await writer.connect()
    process = await consuming(buses.url, buses.cluster, path)
    publishing = asyncio.gather(*(writer.publish(opted_out(name), dedup=f"{buses.cluster}/{name}") for name in names))
    for number in range(KILLS):
        # Anywhere in its share of the work, but not when there is nothing left to do.
        enough = random.randint(number * EVENTS // (KILLS + 1) + 1, (number + 1) * EVENTS // (KILLS + 1))
        await eventually(lambda: path.exists() and path.read_bytes().count(b"\n") >= enough, 60)  # noqa: B023
        await kill(process)
        assert path.read_bytes().count(b"\n") < EVENTS, "else it was not in mid-work"
        process = await consuming(buses.url, buses.cluster, path)
    await publishing

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


async def test_silently_dropped_packets_delay_events_and_lose_none(
    buses: Buses, nats_server: NatsServer, tmp_path: Path
) -> None:
    """The reader is in a network of its own, whose cable is cut and mended: both sides keep a half-open connection."""
    path = tmp_path / "done"
    writer = buses.new("node_watcher")
    await writer.connect()

    async def publish_all(prefix: str) -> None:
        names = [f"{prefix}{number}" for number in range(300)]
        await asyncio.gather(*(writer.publish(opted_out(name), dedup=f"{buses.cluster}/{name}") for name in names))

    with cable() as network:
        async with TcpProxy("127.0.0.1", nats_server.port, listen=network.near) as proxy:
            url = f"nats://{network.near}:{proxy.port}"
            process = await consuming(url, buses.cluster, path, inside=network.inside)
            await publish_all("before")
            await eventually(lambda: path.read_bytes().count(b"\n") > 30)
            network.cut()
            await publish_all("meanwhile")
            await wait_for_line(process, "unavailable")
            assert len(set(path.read_text().split())) < 600, "else the cable was not cut"
            network.mend()
            await publish_all("after")
            await eventually(lambda: len(set(path.read_text().split())) == 900, 60)
            assert process.returncode is None
            await kill(process)
