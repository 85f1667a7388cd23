"""Ten thousand events during faults of the server: in the end the reader knows what is true."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator

import pytest
import structlog
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from support.nats.buses import Buses, eventually, eventually_async
from support.nodes.oracle import TIMING, Reader, Writer
from support.suite.tcp_proxy import TcpProxy
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, STREAM_SUBJECTS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

NAMES = [f"n{number}" for number in range(1000)]
ROUNDS = 10
LONG = 90.0


@contextlib.asynccontextmanager
async def world(
    buses: Buses, reading: Buses | None = None, *, seconds: float = 0.0, workers: int = 16
) -> AsyncIterator[tuple[Writer, Reader]]:
    """A writer and a reader, each on a bus of its own."""
    writer_bus, read = buses.new("node_watcher", timings=TIMING), (reading or buses).new(timings=TIMING)
    await writer_bus.connect()
    writer = Writer(writer_bus)
    writer_bus.on_new_stream.append(writer.publish_everything)
    reader = Reader(writer.truth, seconds=seconds, workers=workers)
    await reader.read(read)
    try:
        yield writer, reader
    finally:
        await reader.close()


async def no_dead_letters(jetstream: JetStreamContext, cluster: str) -> None:
    info = await jetstream.stream_info(STREAM_DEAD, subjects_filter=f"trellis.dead.{cluster}.>")
    assert not info.state.subjects


async def all_acknowledged(jetstream: JetStreamContext, cluster: str) -> bool:
    info = await jetstream.consumer_info(STREAM_EVENTS, f"provisioner-nodes-{cluster}")
    return not info.num_ack_pending and not info.num_pending


@pytest.mark.thorough
async def test_ten_thousand_events_arrive_through_crashes_restarts_and_a_freeze_without_relisting(
    buses: Buses, jetstream: JetStreamContext, nats_server: NatsServer
) -> None:
    def restart(way: str) -> None:
        match way:
            case "SIGKILL":
                nats_server.kill()
            case "SIGTERM":
                nats_server.stop()
            case "SIGSTOP":
                nats_server.pause()
                return
        nats_server.start()

    async with world(buses) as (writer, reader):
        for round_, way in enumerate(("SIGKILL", "SIGTERM", "SIGSTOP", "SIGKILL", "SIGTERM", *[""] * (ROUNDS - 5))):
            changing = asyncio.create_task(writer.change(NAMES))
            if way:
                mark = round_ * len(NAMES) + len(NAMES) // 3
                await eventually(lambda: len(reader.received) > mark, LONG)  # noqa: B023 (waited for in this round)
                restart(way)
            if way == "SIGSTOP":
                await eventually(lambda: not writer.bus.connected.is_set(), LONG)
                nats_server.resume()
            await changing
        assert set(writer.truth.values()) == {ROUNDS}
        await eventually(lambda: reader.known == writer.truth, LONG)
        await eventually(lambda: len(reader.received) == ROUNDS * len(NAMES), LONG)
        await eventually_async(lambda: all_acknowledged(jetstream, buses.cluster), LONG)
        assert (reader.lists, writer.republished) == (0, 0), "the streams were there all the time"
    await no_dead_letters(jetstream, buses.cluster)


async def delete_streams(jetstream: JetStreamContext) -> None:
    for name in STREAM_SUBJECTS:
        with contextlib.suppress(NotFoundError):
            await jetstream.delete_stream(name)


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["streams deleted", pytest.param("store emptied", marks=pytest.mark.thorough)])
async def test_after_a_wipe_of_all_streams_amid_ten_thousand_events_the_final_state_is_correct(
    buses: Buses, jetstream: JetStreamContext, nats_server: NatsServer, way: str
) -> None:
    async with world(buses) as (writer, reader):
        for round_ in range(ROUNDS):
            changing = asyncio.create_task(writer.change(NAMES))
            if round_ == ROUNDS // 2:
                mark = round_ * len(NAMES) + len(NAMES) // 3
                await eventually(lambda: len(reader.received) > mark, LONG)  # noqa: B023 (waited for in this round)
                if way == "streams deleted":
                    await delete_streams(jetstream)
                else:
                    nats_server.kill()
                    shutil.rmtree(nats_server._directory / "store")
                    nats_server.start()
            await changing
        await eventually(lambda: reader.known == writer.truth, LONG)
        assert set(writer.truth.values()) == {ROUNDS}
        assert reader.lists >= 1
        await writer.finished()
        assert writer.republished >= len(NAMES)
        await eventually(lambda: all(reader.received[f"{name}.{ROUNDS}"] for name in NAMES), LONG)
        await eventually_async(lambda: all_acknowledged(jetstream, buses.cluster), LONG)
    await no_dead_letters(jetstream, buses.cluster)


@pytest.mark.thorough
async def test_a_connection_that_passes_nothing_and_stays_open_costs_time_and_no_event(
    buses: Buses, jetstream: JetStreamContext, nats_server: NatsServer
) -> None:
    async with TcpProxy("127.0.0.1", nats_server.port) as proxy:
        behind = Buses(f"nats://127.0.0.1:{proxy.port}", buses.cluster)
        async with world(buses, behind) as (writer, reader):
            (bus,) = behind.made
            await writer.change(NAMES)
            proxy.silence()
            await writer.change(NAMES)
            await eventually(lambda: not bus.connected.is_set(), LONG)
            assert reader.known != writer.truth, "else the proxy let something through"
            proxy.cut()
            proxy.resume()
            await writer.change(NAMES)
            await eventually(lambda: reader.known == writer.truth, LONG)
            await eventually_async(lambda: all_acknowledged(jetstream, buses.cluster), LONG)
            assert reader.lists == 0
        await behind.close()
    await no_dead_letters(jetstream, buses.cluster)


@pytest.mark.thorough
async def test_a_reader_that_lags_far_behind_gets_each_event_once(buses: Buses, jetstream: JetStreamContext) -> None:
    """Slower than the server waits for an acknowledgement, twice over: what waits in the queue is reported as work."""
    async with world(buses, seconds=0.02, workers=4) as (writer, reader):
        await writer.change(NAMES)
        await eventually(lambda: reader.known == writer.truth, LONG)
        await eventually_async(lambda: all_acknowledged(jetstream, buses.cluster), LONG)
        assert set(reader.received.values()) == {1}
        assert reader.deliveries == 1


@pytest.mark.thorough
async def test_messages_that_the_client_drops_as_a_slow_consumer_are_redelivered_and_count_as_no_failure(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    async with world(buses) as (writer, reader):
        reading = buses.made[-1]
        with structlog.testing.capture_logs() as logs:
            (subscription,) = reading._supervisor.subscriptions
            assert subscription._fetching is not None
            subscription._fetching._inbox._pending_bytes_limit = 20_000  # some thirty facts; a batch is a hundred
            await writer.change(NAMES)
            await eventually(lambda: reader.deliveries > 1, LONG)
            subscription._fetching._inbox._pending_bytes_limit = 0
            await eventually(lambda: reader.known == writer.truth, LONG)
            await eventually_async(lambda: all_acknowledged(jetstream, buses.cluster), LONG)
    errors = [line for line in logs if "slow consumer" in str(line.get("error"))]
    assert 0 < len(errors) < 5, "said once a minute, not once a message"
    await no_dead_letters(jetstream, buses.cluster)
