"""An API server that has no seat left says 429: it is believed, and nothing is lost or done twice.

A priority level of its own for the test's account: no shares of the server's seats, which leaves one seat, and no
queue. The seat is taken by a list whose reader does not read.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from support.cluster.accounts import Account
from support.cluster.kube_world import Watched, configmap, eventually, until
from support.suite.tcp_proxy import TcpProxy, kubeconfig_through
from trellis.kube.client import Kube
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.transport import HttpRequest
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

Connect = Callable[[Path], Awaitable[Kube]]
Tries = Callable[[], list[dict[str, Any]]]
pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

FLOWCONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
WRITES = 12
RETRY_AFTER = 1.0
"""Seconds the API server asks those to wait whom it refuses."""
LARGE = 24
"""Objects of a megabyte that cannot be compressed: more than the sockets between server and proxy take up."""


@pytest.fixture
def account(cluster: ClusterInfo, cluster_api: Api, namespace: str, tmp_path: Path) -> Iterator[Account]:
    made = Account(cluster, cluster_api, namespace, tmp_path)
    yield made
    made.remove()


@pytest.fixture
def one_seat(cluster_api: Api, namespace: str, account: Account) -> Iterator[str]:
    """The uid of a priority level with one seat, in which the account is."""
    level = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": namespace},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    all_of_it = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    who = {"kind": "User", "user": {"name": account.user}}
    schema = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": namespace},
        "spec": {
            "priorityLevelConfiguration": {"name": namespace},
            "matchingPrecedence": 2,  # 1 is for the exempt alone
            "rules": [{"subjects": [who], "resourceRules": [all_of_it]}],
        },
    }
    status, made = cluster_api.call("POST", f"{FLOWCONTROL}/prioritylevelconfigurations", level)
    assert status == 201, made
    status, answer = cluster_api.call("POST", f"{FLOWCONTROL}/flowschemas", schema)
    assert status == 201, answer
    yield made["metadata"]["uid"]
    cluster_api.call("DELETE", f"{FLOWCONTROL}/flowschemas/{namespace}")
    cluster_api.call("DELETE", f"{FLOWCONTROL}/prioritylevelconfigurations/{namespace}")


@pytest.fixture
async def throttled(connect: Connect, account: Account, one_seat: str, namespace: str) -> Kube:
    """A connection whose calls are known to be counted against the one seat."""
    own = await connect(account.kubeconfig)

    async def is_counted() -> bool:
        reply = await own._caller.transport.send(HttpRequest("GET", CONFIGMAPS.path(namespace)))
        return reply.headers.get("X-Kubernetes-PF-PriorityLevel-UID") == one_seat

    await eventually(is_counted, "the priority level is in force")
    return own


def refused(kube: Kube, verb: str) -> float:
    requests = kube.telemetry.metrics.kube_requests_total
    return float(requests.labels(kube.telemetry.service, verb, "configmaps", "429")._value.get())


@pytest.fixture
def tries(cluster: ClusterInfo, namespace: str, account: Account) -> Tries:
    """Returns what the API server logged of each write of the account from now on, in order."""
    assert cluster.audit_log is not None
    path = Path(cluster.audit_log)
    offset = path.stat().st_size

    def read() -> list[dict[str, Any]]:
        with path.open("rb") as log:
            log.seek(offset)
            records = [json.loads(line) for line in log]
        return [
            record
            for record in records
            if record.get("objectRef", {}).get("namespace") == namespace and record["user"]["username"] == account.user
        ]

    return read


@pytest.fixture
async def reader(
    kube: Kube, connect: Connect, proxy: TcpProxy, account: Account, namespace: str, tmp_path: Path
) -> Kube:
    """A connection of the same account whose answers the proxy can keep from it, and a list larger than any buffer."""
    for number in range(LARGE):
        await kube.create(CONFIGMAPS, configmap(namespace, f"large-{number}", x=secrets.token_urlsafe(750_000)))
    connection = await connect(kubeconfig_through(proxy.port, account.kubeconfig, tmp_path))
    await connection.get(CONFIGMAPS, "large-0", namespace)  # so that there is a connection to be muted
    return connection


async def test_writes_and_watches_wait_as_asked_while_the_seat_is_taken(
    throttled: Kube, reader: Kube, proxy: TcpProxy, tries: Tries, namespace: str
) -> None:
    watched = Watched(throttled, namespace, timings=WatchTimings(backoff_first=0.1, backoff_most=0.5))
    proxy.mute()
    reading = asyncio.create_task(reader.list(CONFIGMAPS, namespace))
    await eventually(lambda: seat_is_taken(throttled, namespace), "the seat is taken", 60)
    watching = asyncio.create_task(watched.informer.run())
    writes = [asyncio.create_task(throttled.create(CONFIGMAPS, configmap(namespace, f"c{n}"))) for n in range(WRITES)]
    try:
        await until(lambda: refused(throttled, "CREATE") >= WRITES, "every write is refused at first")
        await until(lambda: refused(throttled, "LIST") >= 1, "the watch is refused too")
        assert not throttled.health.readiness().ok
        assert throttled.health.liveness().ok
        proxy.resume()
        await asyncio.gather(reading, *writes)
        await until(watched.informer.synced.is_set, "the watch works")
        await until(lambda: throttled.health.readiness().ok, "ready")
        assert refused(throttled, "LIST") <= 20, "it waits as asked, a second each time"
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    judge(tries())


def judge(records: list[dict[str, Any]]) -> None:
    """Each write was carried out, once, and after each refusal waited for as long as asked."""
    # The server refuses before it reads the body, so a refused create has no name in the log.
    codes = Counter(
        (record.get("objectRef", {}).get("name", ""), record["responseStatus"]["code"]) for record in records
    )
    assert codes.pop(("", 429)) >= WRITES
    assert codes == {(f"c{number}", 201): 1 for number in range(WRITES)}
    # Of so many writers, of which each waits, no more than one try each fits into the time they wait.
    times = sorted(datetime.fromisoformat(record["requestReceivedTimestamp"]) for record in records)
    for former, later in zip(times, times[WRITES:], strict=False):
        assert (later - former).total_seconds() >= RETRY_AFTER * 0.99


async def seat_is_taken(kube: Kube, namespace: str) -> bool:
    await asyncio.sleep(0.3)  # the question takes the seat too: asked all the time, it would leave none for the reader
    reply = await kube._caller.transport.send(HttpRequest("GET", CONFIGMAPS.path(namespace, "kube-root-ca.crt")))
    return reply.status == 429
