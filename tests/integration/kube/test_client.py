"""The client against a real kube-apiserver."""

from __future__ import annotations

import asyncio

import pytest

from support.cluster.kube_behaviour import KubeBehaviour
from support.cluster.kube_world import ForgetHistory
from trellis.kube.client import Kube
from trellis_dev.localcluster import ClusterInfo, restart

pytestmark = pytest.mark.cluster


class TestRealKube(KubeBehaviour):
    @pytest.fixture
    def forget_history(self, kube: Kube, cluster: ClusterInfo) -> ForgetHistory:
        async def forget() -> None:
            # A new process has no history in its watch cache.
            await asyncio.to_thread(restart, cluster.name, "kube-apiserver")
            await kube.wait_available()

        return forget

    @pytest.mark.thorough
    async def test_a_watch_from_a_compacted_version_is_gone(
        self, kube: Kube, namespace: str, forget_history: ForgetHistory
    ) -> None:
        await super().test_a_watch_from_a_compacted_version_is_gone(kube, namespace, forget_history)

    @pytest.mark.thorough
    async def test_a_namespace_in_deletion_takes_nothing_new_and_goes_with_its_last_object(
        self, kube: Kube, namespace: str
    ) -> None:
        await super().test_a_namespace_in_deletion_takes_nothing_new_and_goes_with_its_last_object(kube, namespace)
