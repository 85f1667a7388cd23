"""A Job that was asked for keeps its slot until it is seen: the rules that the rollout's model takes for granted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from provisioner.actions import CreateJob
from provisioner.apply import Effects
from provisioner.canary_apply import ProofEffects
from provisioner.gather import snapshot_of, world_of
from provisioner.known import Known
from provisioner.plan import Entry, Ledger, Plan
from provisioner.rollout_apply import RolloutEffects
from provisioner.settings import Settings
from trellis.bus.bus import Bus
from trellis.kube.breaker import Breaker, Scope
from trellis.kube.errors import Unavailable
from trellis.kube.fake import FakeKube
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import JOBS, NAMESPACES, NODES
from trellis.kube.transport import HttpRequest
from trellis.provisioning import KWASM, NodeView, Target
from trellis.telemetry import Metrics, setup
from trellis.testing.builders import DIGEST, a_node, opted_in

SLOT = Entry(DIGEST, 1, 5)


class Provisioner:
    """One node with a slot, and what a run of it and of the planner go through."""

    def __init__(self) -> None:
        telemetry = setup("test", metrics=Metrics())
        self.kube = FakeKube(telemetry=telemetry)
        for name in ("trellis-installers", "trellis-system"):
            self.kube.put(NAMESPACES, {"metadata": {"name": name}})
        uid = self.kube.put(NODES, {"metadata": {"name": "node-1"}})["metadata"]["uid"]
        self.node: NodeView = opted_in(a_node(uid=uid))
        away = SimpleNamespace(connected=asyncio.Event())
        self.known = Known(self.kube, cast("Bus", away), Settings(), {"node-1": self.node}, {})
        self.known.ledger = Ledger({uid: SLOT})
        self.shown: list[str] = []
        self.ended = 0
        self.known.begun.show = lambda job: self.shown.append(job["metadata"]["name"])
        self.known.begun.ended = self.count
        recorder = EventRecorder(self.kube, component="test")
        breaker = Breaker(self.kube, recorder, Scope("provisioner", "trellis-system", {"jobs": lambda: 1}), self.count)
        proof = ProofEffects(self.kube, self.known, telemetry)
        self.effects = Effects(self.kube, self.known.bus, recorder, self.known, telemetry, breaker, proof, self.count)
        self.rollout = RolloutEffects(self.kube, self.known.bus, recorder, self.known)

    def count(self) -> None:
        self.ended += 1

    async def make(self) -> None:
        await self.effects.apply([CreateJob(self.node, Target(((KWASM, DIGEST),)), SLOT.attempt)])

    @property
    def jobs(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.kube.objects(JOBS)]


@pytest.fixture
def provisioner() -> Provisioner:
    return Provisioner()


async def test_a_job_that_was_made_is_shown_before_the_watch_does(provisioner: Provisioner) -> None:
    await provisioner.make()
    assert provisioner.shown == provisioner.jobs
    assert len(provisioner.jobs) == 1
    assert provisioner.known.begun.entries() == {}


async def test_a_job_whose_end_the_watch_may_have_shown_is_not_shown_again(provisioner: Provisioner) -> None:
    provisioner.known.begun.made(provisioner.node.uid, {"metadata": {"name": "seen"}})
    assert provisioner.shown == []


@pytest.mark.parametrize(
    "slots",
    [None, (), (Entry(DIGEST, 2, 5),), (Entry("other", 1, 5),)],
    ids=["is doubted", "has it no more", "has another try", "has something else"],
)
async def test_no_job_is_made_when_the_ledger(provisioner: Provisioner, slots: tuple[Entry, ...] | None) -> None:
    """The decision was made before: the ledger is asked again at the last moment."""
    uid = provisioner.node.uid
    provisioner.known.ledger = None if slots is None else Ledger({uid: slots[0]} if slots else {})
    await provisioner.make()
    assert provisioner.jobs == []
    assert provisioner.known.begun.entries() == {}


async def test_no_job_is_made_of_a_slot_that_goes_to_another_node_with_the_plan_being_written(
    provisioner: Provisioner,
) -> None:
    """While the request with the new ledger is open the old one is all that is known to be accepted."""
    while_written: list[list[str]] = []
    replacing = provisioner.kube.replace

    async def replace(*args: object, **options: object) -> object:
        await provisioner.make()
        while_written.append(provisioner.jobs)
        return await replacing(*args, **options)  # type: ignore[arg-type]

    await provisioner.rollout.write_ledger(Plan(Ledger({provisioner.node.uid: SLOT})))
    provisioner.kube.replace = replace  # type: ignore[method-assign, assignment]
    await provisioner.rollout.write_ledger(Plan(Ledger({})))
    assert while_written == [[]]
    assert provisioner.known.writing is None


async def test_a_node_keeps_its_slot_while_its_job_is_on_its_way(provisioner: Provisioner) -> None:
    """Whatever becomes of the node's wish meanwhile."""
    seen: list[object] = []

    def sent(request: HttpRequest) -> bool:
        if request.path.endswith("/jobs"):
            seen.append(provisioner.known.begun.entries())
        return False

    provisioner.kube.fail_next(1, when=sent)
    await provisioner.make()
    assert seen == [{provisioner.node.uid: SLOT}]
    provisioner.known.begun.slots[provisioner.node.uid] = SLOT
    provisioner.known.begun.jobs[provisioner.node.uid] = "its-job"
    assert (await world_of(provisioner.known)).begun == {provisioner.node.uid: SLOT}


@pytest.mark.parametrize("arrived", [True, False])
async def test_after_a_lost_answer_the_job_is_looked_for_before_anything_is_decided(
    provisioner: Provisioner, arrived: bool
) -> None:
    if arrived:
        await provisioner.make()
        provisioner.shown.clear()
    provisioner.kube.fail_next(1, when=lambda request: request.method == "POST" and request.path.endswith("/jobs"))
    with pytest.raises(Unavailable):
        await provisioner.make()
    assert provisioner.known.begun.entries() == {provisioner.node.uid: SLOT}
    before = provisioner.ended
    await snapshot_of(provisioner.known, "node-1")
    assert provisioner.shown == (provisioner.jobs if arrived else [])
    assert provisioner.known.begun.entries() == {}
    assert provisioner.ended == before + 1, "the planner may look at the slot again"
