"""A successor counts up the Events of a former process, with the permissions of a service."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster.grants import Granted, granted, manifests
from support.cluster.kube_world import until
from support.suite.suite_permissions import FILES
from trellis.kube.client import Kube
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import CONFIGMAPS, EVENTS, NODES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

OF_NODES = ("node-watcher", "provisioner")
"""Their Events are of what is in no namespace; the Event is in ``default``."""
SERVICES = [
    name.removesuffix(".yaml")
    for name in FILES
    if any("events" in rule["resources"] for manifest in manifests(name) for rule in manifest.get("rules", ()))
]


@pytest.fixture
def account(service: str, cluster: ClusterInfo, cluster_api: Api, tmp_path: Path) -> Iterator[Granted]:
    found = [
        manifest
        for manifest in manifests(f"{service}.yaml")
        if manifest["metadata"].get("namespace") != "trellis-installers"
    ]
    with granted(cluster, cluster_api, f"trellis-{service}", tmp_path) as made:
        made.apply(found)
        yield made


@pytest.mark.parametrize("service", SERVICES)
async def test_a_successor_continues_the_count_of_a_published_event(
    service: str, account: Granted, cluster_api: Api, connect: Callable[[Path], Awaitable[Kube]], namespace: str
) -> None:
    kind, place = (NODES, None) if service in OF_NODES else (CONFIGMAPS, namespace)
    home, unique = place or "default", secrets.token_hex(8)
    regarding = ObjectRef(kind.api_version, kind.kind, f"thing-{unique}", unique, place)
    kube = await connect(account.kubeconfig)

    def counts() -> list[Any]:
        component = f"reportingComponent%3Dtrellis.dev%2F{service}"  # as the next leader reads them
        about = f"?fieldSelector=involvedObject.uid%3D{regarding.uid},{component}"
        return [item["count"] for item in cluster_api.call("GET", EVENTS.path(home) + about)[1]["items"]]

    for count in (1, 2):
        successor = EventRecorder(kube, component=f"trellis.dev/{service}")
        await successor.record(regarding=regarding, type="Normal", reason="Happened", message="again")
        expected = [count]
        await until(lambda: counts() == expected, f"the Event counts {count}")  # noqa: B023 - awaited in the loop
