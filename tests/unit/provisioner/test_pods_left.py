"""An installer pod may run on its node without its Job, also on a new Node of that name: no second one beside it."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.cache import Cache
from provisioner.domain.actions import CreateJob, GiveBackSlot, WarnNode
from provisioner.domain.decide import decide
from provisioner.gather import Gather
from provisioner.settings import Settings
from support.nodes.shown import show_job, show_ledger
from trellis import names
from trellis.kube.resources import NAMESPACES, PODS
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.views import JobView
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import DIGEST, a_job, a_node, opted_in

NAMESPACE = "trellis-installers"
NEW = opted_in(a_node(uid="uid-new"))


def a_pod(node: str, phase: str = "Running", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"of-{node}", "namespace": NAMESPACE, "labels": labels or {names.LABEL_JOB: "true"}},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


class World:
    """A provisioner that has just started: one Node with a slot, and pods from before."""

    def __init__(self, pod: dict[str, Any]) -> None:
        self.kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
        self.kube.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.kube.put(PODS, pod)
        settings = Settings(installer_image="example.com/installer:1", installer_namespace=NAMESPACE)
        self.cache = Cache(self.kube, settings, {NEW.name: NEW}, {})
        self.slot = Entry(self.cache.installer.digest or DIGEST, 1, 5)
        show_ledger(self.cache, Ledger({NEW.uid: self.slot}))

    async def decided(self, *jobs: JobView) -> list[type]:
        for job in jobs:
            show_job(self.cache, job)
        return [type(action) for action in decide(await Gather(self.kube, self.cache).snapshot(NEW.name))]


async def test_no_job_is_made_while_an_installer_pod_without_a_job_runs_on_the_node() -> None:
    world = World(a_pod(NEW.name))
    assert await world.decided() == [WarnNode, GiveBackSlot]
    world.kube.put(PODS, a_pod(NEW.name, "Failed"))
    assert await world.decided() == [CreateJob]


@pytest.mark.parametrize(
    "pod",
    [a_pod(NEW.name, "Succeeded"), a_pod("node-2"), a_pod(NEW.name, canary="true")],
    ids=["it ended", "on another node", "no installer's"],
)
async def test_a_job_is_made_beside_a_pod_of_which_nothing_works_on_the_node(pod: dict[str, Any]) -> None:
    assert await World(pod).decided() == [CreateJob]


async def test_pods_are_not_read_while_a_job_is_at_work() -> None:
    """Its end is seen anyway, so one LIST for each Job that is made is enough."""
    world = World(a_pod(NEW.name))
    world.kube.fail_next(9, when=lambda request: request.path.endswith("/pods"))
    assert CreateJob not in await world.decided(a_job(NEW, digest="former", created_at=world.kube.now()))
