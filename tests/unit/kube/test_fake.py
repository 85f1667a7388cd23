"""FakeKube passes the suite that the real server passes, and its watches lose no event."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from support.cluster.kube_behaviour import KubeBehaviour
from support.cluster.kube_world import ForgetHistory
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.transport import HttpRequest
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.fakes.refusals import Target
from trellis_dev.fakes.server import FakeApiServer


class TestFakeKube(KubeBehaviour):
    @pytest.fixture
    async def kube(self) -> FakeKube:
        return FakeKube()

    @pytest.fixture
    async def namespace(self, kube: FakeKube) -> str:
        await kube.ensure_namespace("ns", {})
        return "ns"

    @pytest.fixture
    def forget_history(self, kube: FakeKube) -> ForgetHistory:
        async def forget() -> None:
            kube.compact()

        return forget


async def test_a_change_at_the_moment_of_a_bookmark_is_an_event() -> None:
    api = FakeApiServer(bookmark=0)
    query = {"watch": "true", "resourceVersion": str(api.store.version), "timeoutSeconds": "60"}
    request = HttpRequest("GET", "/api/v1/namespaces/default/configmaps", query)
    async with api.stream(request, idle_seconds=60) as opened:
        first = asyncio.ensure_future(anext(aiter(opened.lines)))
        await asyncio.sleep(0)  # the watch waits, and its timeout is due in the next iteration of the loop
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "now", "namespace": "default"}}
        api.store.create(Target(CONFIGMAPS, "default", "now"), manifest)
        assert orjson.loads(await first)["type"] == "ADDED"
