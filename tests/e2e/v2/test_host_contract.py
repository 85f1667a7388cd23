"""The published runtime of wasmCloud v2 with Trellis' NATS half, held to the recordings as the stand-in is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from support.v2.host_behaviour import (
    CLOSED,
    ENVIRONMENT,
    HOST_GROUP,
    REGISTRY,
    SECONDS,
    SILENT,
    SLOW_PULL,
    UNRECORDED,
    HostBehaviour,
    NewHost,
    Operator,
    Running,
    Translate,
    Unrecorded,
)
from support.v2.real_host import Images, StartHost
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.v2host import V2HostOptions

_RECORDED_DIGEST = "demo/hello@sha256:952c48c5fd5be805f7b11af4dae470a141e01398431c46c59de773c44501cdde"
"""The recorded image demo/hello:1."""
PULL_SECONDS = 2 * SLOW_PULL
"""Of pulls that have to fail. The other ones take longer than this on a busy machine."""


@pytest.fixture
def url(bus: NatsServer) -> str:
    return bus.url


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """Return the address of a server that accepts connections and never answers."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"


class TestHost(HostBehaviour):
    @pytest.fixture
    def translate(self, images: Images, silent: str) -> Translate:
        closed = f"{LOOPBACK}:{free_ports(1)[0]}"
        by_digest = f"demo/hello@{images.digests['demo/hello:1']}"
        changes = {_RECORDED_DIGEST: by_digest, REGISTRY: images.registry, CLOSED: closed, SILENT: silent}

        def translate(image: str) -> str:
            for old, new in changes.items():
                image = image.replace(old, new)
            return image

        return translate

    @pytest.fixture
    def new_host(self, url: str, start_host: StartHost) -> NewHost:
        async def start(heartbeat: float, *, slow_pull: bool = False) -> Running:
            options = V2HostOptions(
                nats_url=url,
                host_group=HOST_GROUP,
                environment=ENVIRONMENT,
                heartbeat=heartbeat,
                pull_timeout=PULL_SECONDS if slow_pull else V2HostOptions.pull_timeout,
            )
            host = await asyncio.to_thread(start_host, options)

            async def kill() -> None:
                await asyncio.to_thread(host.kill)

            return Running(host.id, host.friendly_name, options.address, host.port, kill)

        return start

    @pytest.mark.parametrize("start", UNRECORDED.values(), ids=UNRECORDED)
    async def test_start_that_only_the_real_host_refuses(
        self, operator: Operator, new_host: NewHost, translate: Translate, start: Unrecorded
    ) -> None:
        """A known difference of the published runtime: if it ends, correct ADR 113 and move the case to the suite."""
        host = await new_host(SECONDS)
        status = await operator.status(host.id, "start", start.request(translate))
        assert status["workloadState"] == "WORKLOAD_STATE_RUNNING"
