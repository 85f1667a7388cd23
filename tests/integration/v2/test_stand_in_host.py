"""The stand-in of a wasmCloud v2 host on a real nats-server, held to the recordings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import nats
import pytest

from support.v2.component_images import RECORDED
from support.v2.host_behaviour import (
    CLOSED,
    ENVIRONMENT,
    HOST,
    NO_NAME,
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
from support.v2.stand_in_host import Component, Images, Options, PullFailure, StandInHost
from trellis.v2.reasons import Reason
from trellis.v2.start_failures import classify
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats


def recorded_images() -> Images:
    """Return the images of the recordings, as the stand-in has them."""
    images: dict[str, Component | PullFailure] = {
        f"{REGISTRY}/{name}": Component(content.imports, content.http)
        if content.component
        else PullFailure("pulled artifact is not a valid WebAssembly component")
        for name, content in RECORDED.items()
    }
    by_digest = [text for text in str(HOST["conversations"]).split("'") if "@sha256:" in text]
    failures = {
        f"{CLOSED}/demo/hello:1": "failed to pull component from {}: tcp connect error: Connection refused",
        f"{NO_NAME}/demo/hello:1": "failed to pull component from {}: dns error: failed to lookup address information",
        f"{SILENT}/demo/hello:1": "timeout pulling component from {}",
    }
    return {
        **images,
        **{image: Component() for image in by_digest},
        **{
            image: PullFailure(cause.format(image), SLOW_PULL if image.startswith(SILENT) else 0.0)
            for image, cause in failures.items()
        },
    }


@pytest.fixture
def url(nats_server: NatsServer) -> str:
    return nats_server.url


class TestStandInHost(HostBehaviour):
    @pytest.fixture
    def translate(self) -> Translate:
        return lambda image: image

    @pytest.fixture
    async def new_host(self, url: str) -> AsyncIterator[NewHost]:
        images = recorded_images()
        async with AsyncExitStack() as stack:

            async def start(heartbeat: float, *, slow_pull: bool = False) -> Running:
                del slow_pull  # a pull fails by the image
                client = await nats.connect(url)
                stack.push_async_callback(client.close)
                options = Options(images=images, environment=ENVIRONMENT, heartbeat=heartbeat)
                host = await stack.enter_async_context(StandInHost(client, options))
                return Running(host.id, host.friendly_name, options.address, options.port, host.__aexit__)

            yield start

    @pytest.mark.parametrize("start", UNRECORDED.values(), ids=UNRECORDED)
    async def test_start_that_is_refused_by_source(
        self, operator: Operator, new_host: NewHost, translate: Translate, start: Unrecorded
    ) -> None:
        host = await new_host(SECONDS)
        status = await operator.status(host.id, "start", start.request(translate))
        assert status["workloadState"] == "WORKLOAD_STATE_ERROR"
        assert classify(status["message"]).reason is start.reason

    async def test_a_cached_image_is_not_pulled(
        self, operator: Operator, new_host: NewHost, translate: Translate
    ) -> None:
        host = await new_host(SECONDS)
        never = UNRECORDED["an image that is not cached"].request(translate)
        pulled = Unrecorded(Reason.HEALTHY).request(translate) | {"workloadId": "before"}
        for request in (pulled, never):
            assert (await operator.status(host.id, "start", request))["workloadState"] == "WORKLOAD_STATE_RUNNING"
