"""FakeKube passes the suite the real server passes."""

from __future__ import annotations

import pytest

from support.cluster.kube_behaviour import KubeBehaviour
from support.cluster.kube_world import ForgetHistory
from trellis_dev.fakes.fake import FakeKube


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
