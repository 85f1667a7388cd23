"""An installer pod may run on its node without its Job, also on a new Node of that name: no second one beside it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from provisioner.cache import Cache
from provisioner.domain.actions import CreateJob, GiveBackSlot, WarnNode
from provisioner.domain.decide import decide
from provisioner.gather import Gather
from provisioner.pods import Pods
from provisioner.settings import Settings
from support.nodes.shown import show_job, show_ledger
from trellis import names
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.resources import NAMESPACES, PODS
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.views import JobState, JobView
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

    def listing(self, *nodes: str) -> None:
        """The pods of former terms are known, and a further read fails."""
        self.cache.installer_pods_listed(nodes)
        self.kube.fail_next(9, when=lambda request: request.path.endswith("/pods"))

    def changed(self, *jobs: JobView | None) -> None:
        for old, new in pairwise([None, *jobs]):
            if (last := new or old) is not None:
                self.cache.job_changed(Change(ChangeKind.MODIFIED, last.name, old, new))

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


async def test_the_pods_of_former_terms_are_listed_once() -> None:
    world = World(a_pod("node-2"))
    world.kube.put(PODS, a_pod("node-3", "Failed"))
    assert await Pods(world.kube).nodes_at_work(NAMESPACE) == {"node-2"}


async def test_pods_are_not_read_for_a_node_without_former_pods() -> None:
    world = World(a_pod("node-2"))
    world.listing("node-2")
    assert await world.decided() == [CreateJob]


OLD = a_job(NEW, digest="former")
COMPLETE, FAILED = replace(OLD, state=JobState.COMPLETE), replace(OLD, state=JobState.FAILED)


@pytest.mark.parametrize(
    ("jobs", "read"),
    [
        ((OLD, COMPLETE), False),
        ((OLD, COMPLETE, None), False),
        ((OLD, FAILED), True),
        ((OLD, FAILED, None), True),
        ((OLD, None), True),
        ((OLD, None, COMPLETE, replace(COMPLETE, deleting=True), None), True),
        ((None,), False),
    ],
    ids=[
        *("complete", "complete and deleted", "failed", "failed and deleted", "deleted while at work"),
        *("an earlier Job is deleted later", "no Job"),
    ],
)
async def test_pods_are_read_unless_the_last_job_of_the_node_is_complete(
    jobs: tuple[JobView | None, ...], read: bool
) -> None:
    world = World(a_pod("node-2"))
    world.listing()
    world.changed(*jobs)
    assert world.cache.may_have_pods(NEW.name) is read


async def test_pods_are_read_while_it_is_not_known_whether_a_job_was_created() -> None:
    world = World(a_pod("node-2"))
    world.listing()
    assert world.cache.job_begins(NEW, (world.slot.digest, 1), "its-job") is not None
    assert world.cache.may_have_pods(NEW.name)
    world.changed(replace(COMPLETE, name="another"))
    assert world.cache.may_have_pods(NEW.name)
    world.changed(replace(COMPLETE, name="its-job"))
    assert not world.cache.may_have_pods(NEW.name)


async def test_pods_are_not_read_while_a_job_is_at_work() -> None:
    """Its end is seen anyway, so one LIST for each Job that is made is enough."""
    world = World(a_pod(NEW.name))
    world.kube.fail_next(9, when=lambda request: request.path.endswith("/pods"))
    assert CreateJob not in await world.decided(a_job(NEW, digest="former", created_at=world.kube.now()))
