"""deploy/examples/keda with KEDA itself: no host at night, three by day.

Nodes are simulated. The example is applied as it stands; then the hours of its day are moved to where the test is, by
a kustomization over it, and nothing else.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from support.examples.applied_examples import Kubectl
from support.examples.example_overlays import overlay, replaced
from support.examples.folders import manifest
from support.lattices.host_world import HostWorld
from support.nodes.fleet import eventually
from support.operators.keda import keda
from support.operators.operator_processes import Operators
from trellis.kube.resources import HOST_CONFIGS, Resource

pytestmark = pytest.mark.cluster

HOSTS = "hosts"
SCALED = Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject", namespaced=True)
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", namespaced=True)
SCALING_SECONDS = 150.0
"""KEDA looks every 30 s, the autoscaler of Kubernetes every 15 s, and it learns of new kinds of figures every 30 s."""
DAY = dt.timedelta(minutes=3)


@pytest.fixture
def with_keda(operators: Operators) -> Iterator[None]:
    with keda(operators):
        yield


@pytest.mark.usefixtures("with_keda")
async def test_there_are_hosts_by_day_and_none_at_night(hello: HostWorld, kubectl: Kubectl, tmp_path: Path) -> None:
    spec = manifest("keda", "ScaledObject")["spec"]
    zone = ZoneInfo(spec["triggers"][0]["metadata"]["timezone"])
    wanted = int(spec["triggers"][0]["metadata"]["desiredReplicas"])

    async def hosts(count: int | None = None, *, seconds: float = SCALING_SECONDS) -> None:
        def there() -> bool:
            now = dt.datetime.now(zone)
            office_hours = now.weekday() < 5 and 7 <= now.hour < 19
            number = count if count is not None else wanted if office_hours else 0
            found = hello.call("GET", HOST_CONFIGS, HOSTS)
            status = found.get("status") or {}
            return (
                status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("readyReplicas", 0) == number
                and len(hello.pods(HOSTS)) == number
            )

        await eventually(there, f"{'as the file says' if count is None else count} hosts", seconds=seconds)

    async with hello.service():
        await asyncio.to_thread(kubectl.apply, "host-group")
        await hello.settled(HOSTS)
        await asyncio.to_thread(kubectl.apply, "keda")
        await hosts()
        await asyncio.to_thread(kubectl.wait, "Ready", f"scaledobject/{HOSTS}", hello.namespace)
        await asyncio.to_thread(kubectl.delete, "keda")  # its finalizer goes, and the autoscaler that KEDA made
        await eventually(lambda: hello.call("GET", AUTOSCALERS)["items"] == [], "its autoscaler is gone")

        morning = (dt.datetime.now(zone) + dt.timedelta(seconds=110)).replace(second=0, microsecond=0)
        await asyncio.to_thread(kubectl, "scale", "whc", HOSTS, "-n", hello.namespace, "--replicas=1")
        await asyncio.to_thread(kubectl, "apply", "-k", str(moved(morning, morning + DAY, tmp_path / "over")))
        await hosts(0, seconds=100)
        await hosts(wanted, seconds=(morning - dt.datetime.now(zone)).total_seconds() + SCALING_SECONDS)
        assert dt.datetime.now(zone) >= morning
        evening = (morning + DAY - dt.datetime.now(zone)).total_seconds()
        await hosts(0, seconds=evening + spec["cooldownPeriod"] + SCALING_SECONDS)
        await asyncio.to_thread(kubectl.delete, "keda")
        await hello.settled(HOSTS)


def moved(start: dt.datetime, end: dt.datetime, folder: Path) -> Path:
    """Return a kustomization in which the day of the example is today, from one minute to another."""
    hours = {
        f"_spec_triggers_0_metadata_{name}": f"{at.minute} {at.hour} * * *"
        for name, at in (("start", start), ("end", end))
    }
    return overlay(folder, "keda", replaced(SCALED.kind, **hours))
