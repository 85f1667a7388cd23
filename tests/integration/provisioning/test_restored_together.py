"""etcd and the store of JetStream are restored from one backup: services act on the present objects, and subscribe
again.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster.etcd_backup import EtcdBackup
from support.nodes.fleet import Fleet, eventually
from support.nodes.installers import INSTALLER_STAGES
from trellis_dev.localcluster import ClusterInfo, kill, owned_cluster, restart
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.paths import Layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.thorough]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    """A control plane of this module's own: a restore undoes all changes."""
    with owned_cluster(audit=True, kwok_stages=INSTALLER_STAGES) as info:
        yield info


@pytest.fixture(scope="module")
def cluster_api(cluster: ClusterInfo) -> Iterator[Api]:
    api = Api.of_kubeconfig(Path(cluster.kubeconfig))
    yield api
    api.close()


class BusBackup:
    """A copy of nats-server's data directory, taken while it is stopped."""

    def __init__(self, cluster: ClusterInfo, folder: Path) -> None:
        self._name = cluster.name
        self._data = Layout.of(cluster.name).root / "data" / "nats"
        self._copy = folder / "nats"

    def take(self) -> None:
        kill(self._name, "nats-server")
        shutil.copytree(self._data, self._copy)
        restart(self._name, "nats-server")

    def restore(self) -> None:
        kill(self._name, "nats-server")
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        restart(self._name, "nats-server")


async def test_work_done_after_the_backup_is_repeated_on_request(
    fleet: Fleet, cluster: ClusterInfo, tmp_path: Path
) -> None:
    store, bus = EtcdBackup(cluster, tmp_path), BusBackup(cluster, tmp_path)
    before, after = fleet.add("node", "node", opted_in=False)
    async with fleet.services() as running:
        fleet.annotate(before, "true")
        await fleet.all_provisioned([before])
        await fleet.quiet()
        await asyncio.to_thread(store.take)
        await asyncio.to_thread(bus.take)
        fleet.api.close()
        await eventually(lambda: fleet.api.ok("/readyz"), "the API server is there", seconds=60)
        fleet.annotate(after, "true")
        await fleet.all_provisioned([after], seconds=90)
        await fleet.quiet()
        for _ in range(300):  # versions that the restored server does not have for as long as this test lasts
            fleet.patch(after, {"metadata": {"annotations": {"example.com/turn": secrets.token_hex(4)}}})
        await asyncio.to_thread(store.restore)
        await asyncio.to_thread(bus.restore)
        fleet.api.close()
        await eventually(lambda: fleet.api.ok("/readyz"), "the API server is there again", seconds=60)
        assert not fleet.provisioned(after), "the backup is older"
        assert fleet.provisioned(before)
        fleet.annotate(after, "true")
        await fleet.all_provisioned([after], seconds=90)
        assert fleet.provisioned(before)
        await eventually(lambda: all(item.health.readiness().ok for item in running), "both are ready", seconds=60)
        fleet.annotate(before, None)
        await eventually(lambda: not fleet.provisioned(before), "opted out", seconds=60)
