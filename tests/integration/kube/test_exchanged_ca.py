"""The API server's certificate comes from a new authority while a service runs: followed in ``ca.crt``, no restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from support.cluster.api_proxy import ApiProxy
from support.cluster.kube_world import Watched, configmap, until
from trellis.kube.client import Kube
from trellis.kube.errors import Unavailable
from trellis.kube.network_errors import NOT_TRUSTED
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.localcluster import ClusterInfo

Connect = Callable[[Path], Awaitable[Kube]]
pytestmark = pytest.mark.cluster

TIMINGS = WatchTimings(backoff_first=0.05, backoff_most=0.5)


async def test_a_new_authority_is_named_until_its_file_has_it_and_then_followed(
    cluster: ClusterInfo, kube: Kube, connect: Connect, namespace: str, tmp_path: Path
) -> None:
    async with ApiProxy(Path(cluster.kubeconfig), tmp_path, keeps=True) as proxy:
        path, authority = proxy.kubeconfig(proxy.port, tmp_path / "through"), tmp_path / "ca.crt"
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = config["clusters"][0]["cluster"]
        del found["certificate-authority-data"]
        path.write_text(
            yaml.safe_dump(
                config
                | {
                    "clusters": [
                        {
                            "name": config["clusters"][0]["name"],
                            "cluster": {**found, "certificate-authority": str(authority)},
                        }
                    ]
                }
            ),
            encoding="utf-8",
        )
        authority.write_bytes(proxy.authorities[0])
        own = await connect(path)
        async with Watched(own, namespace, timings=TIMINGS) as watched:
            await proxy.exchange_authority()
            await until(lambda: NOT_TRUSTED in str(own.health.readiness().reasons), "it is named")
            with pytest.raises(Unavailable, match=NOT_TRUSTED):
                await own.create(CONFIGMAPS, configmap(namespace, "never"))
            assert own.health.liveness().ok
            await kube.create(CONFIGMAPS, configmap(namespace, "meanwhile"))
            authority.write_bytes(proxy.authorities[1])
            await until(lambda: f"{namespace}/meanwhile" in watched.informer.objects, "the watch goes on")
            await until(lambda: own.health.readiness().ok, "ready")
            await own.create(CONFIGMAPS, configmap(namespace, "after"))
            await until(lambda: f"{namespace}/after" in watched.informer.objects, "its own change")
            assert f"{namespace}/never" not in watched.informer.objects
