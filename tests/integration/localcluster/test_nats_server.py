"""The nats-server fixture: what tests of the bus rely on."""

from __future__ import annotations

import nats
import psutil
import pytest
from nats.js.api import StreamConfig

from support.suite.settling import settle
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats


async def test_a_message_outlives_a_crash_and_a_restart_on_the_same_port(nats_server: NatsServer) -> None:
    url = nats_server.url
    client = await nats.connect(url)
    await client.jetstream().add_stream(StreamConfig(name="KEEP", subjects=["keep.>"]))
    await client.jetstream().publish("keep.it", b"x")
    await client.close()

    nats_server.kill()
    assert nats_server.pid is None
    nats_server.start()

    assert nats_server.url == url
    client = await nats.connect(url)
    assert (await client.jetstream().stream_info("KEEP")).state.messages == 1
    await client.jetstream().delete_stream("KEEP")
    await client.close()


@pytest.mark.thorough
async def test_a_frozen_server_keeps_its_process_and_answers_again(nats_server: NatsServer) -> None:
    pid = nats_server.pid
    assert pid is not None
    nats_server.pause()
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    nats_server.resume()
    client = await nats.connect(nats_server.url)
    await settle(client)
    await client.close()
    assert nats_server.pid == pid
