"""A requested Job keeps its slot until it is seen, and its changes count as unconfirmed if it disappears unseen.

The rules that the rollout's model takes for granted.
"""

from __future__ import annotations

from typing import cast

import pytest

from provisioner.apply import Effects
from provisioner.cache import Cache
from provisioner.canary_apply import VerificationEffects
from provisioner.domain.actions import CreateJob, CreateUndo, DeleteJob
from provisioner.domain.decide import decide
from provisioner.domain.plan import Plan, plan
from provisioner.domain.pod_readiness import Workloads
from provisioner.domain.resources import Task
from provisioner.domain.unconfirmed import NOTHING
from provisioner.gather import Gather
from provisioner.rollout_apply import RolloutEffects
from provisioner.rollout_gather import fleet_snapshot
from provisioner.settings import Settings
from support.nodes.shown import show_ledger
from trellis import names
from trellis.bus.bus import Bus
from trellis.kube.breaker import Breaker, Scope
from trellis.kube.errors import KubeError, Unavailable
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import JOBS, NAMESPACES, NODES, Manifest
from trellis.kube.transport import HttpRequest
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import KWASM, REMOVE, NodeView, Target
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube, status_reply
from trellis_dev.testing.builders import DIGEST, a_job, a_node, opted_in

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
        self.cache = Cache(self.kube, Settings(), {"node-1": self.node}, {})
        show_ledger(self.cache, Ledger({uid: SLOT}))
        self.shown: list[str] = []
        self.ended = 0
        recorder = EventRecorder(self.kube, component="test")
        breaker = Breaker(
            self.kube, recorder, Scope("provisioner", "trellis-system", {"jobs": lambda: 1}, {}), self.count
        )
        verification = VerificationEffects(self.kube, self.cache, telemetry)
        self.effects = Effects(
            self.kube, cast("Bus", None), recorder, self.cache, telemetry, breaker, verification, self.show, self.count
        )
        self.rollout = RolloutEffects(self.kube, cast("Bus", None), recorder, self.cache)

    def show(self, job: Manifest) -> None:
        self.shown.append(job["metadata"]["name"])

    def count(self) -> None:
        self.ended += 1

    async def make(self) -> float | None:
        return await self.effects.apply([CreateJob(self.node, Task(Target(((KWASM, DIGEST),))), SLOT.attempt)])

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
    assert provisioner.cache.in_progress() == {}


async def test_a_job_whose_end_the_watch_may_have_shown_is_not_shown_again(
    provisioner: Provisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    creating = provisioner.kube.create

    async def create(*args: object, **options: object) -> object:
        made = await creating(*args, **options)  # type: ignore[arg-type]
        assert provisioner.cache.request_settled(provisioner.node.uid)  # as the watch does
        return made

    monkeypatch.setattr(provisioner.kube, "create", create)
    await provisioner.make()
    assert len(provisioner.jobs) == 1
    assert provisioner.shown == []


@pytest.mark.parametrize(
    "slots",
    [None, (), (Entry(DIGEST, 2, 5),), (Entry("other", 1, 5),)],
    ids=["is doubted", "has it no more", "has another try", "has something else"],
)
async def test_no_job_is_made_when_the_ledger(provisioner: Provisioner, slots: tuple[Entry, ...] | None) -> None:
    """The decision was made before: the ledger is asked again at the last moment."""
    uid = provisioner.node.uid
    if slots is None:
        provisioner.cache.invalidate_ledger()
    else:
        show_ledger(provisioner.cache, Ledger({uid: slots[0]} if slots else {}))
    await provisioner.make()
    assert provisioner.jobs == []
    assert provisioner.cache.in_progress() == {}


async def test_no_job_is_made_of_a_slot_that_goes_to_another_node_with_the_plan_being_written(
    provisioner: Provisioner,
) -> None:
    """While the request with the new ledger is open the old one is all that is cache to be accepted."""
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


async def test_a_node_keeps_its_slot_while_its_job_is_on_its_way(provisioner: Provisioner) -> None:
    """The node's target may change meanwhile."""
    seen: list[object] = []

    def sent(request: HttpRequest) -> bool:
        if request.path.endswith("/jobs"):
            seen.append(provisioner.cache.in_progress())
        return False

    provisioner.kube.fail_next(1, when=sent)
    await provisioner.make()
    assert seen == [{provisioner.node.uid: SLOT}]
    assert provisioner.cache.job_begins(provisioner.node, (DIGEST, 1), "its-job")
    assert fleet_snapshot(provisioner.cache, provisioner.kube.now(), Workloads()).in_progress == {
        provisioner.node.uid: SLOT
    }


async def test_a_name_that_a_job_has_which_no_watch_shows_is_tried_again(provisioner: Provisioner) -> None:
    """Admission took the marks from that one, so it is deleted, and holds the name until its pods are deleted."""
    assert await provisioner.make() is None
    [job] = provisioner.kube.objects(JOBS)
    assert await provisioner.make() == provisioner.cache.timings.nodes.name_taken
    provisioner.kube.remove(JOBS, job["metadata"]["name"], job["metadata"]["namespace"])
    await provisioner.effects.find_requested_job("node-1")
    assert await provisioner.make() is None
    assert len(provisioner.jobs) == 1


async def test_the_name_of_an_undoing_job_that_no_watch_shows_is_tried_again(provisioner: Provisioner) -> None:
    task = Task(Target(((KWASM, DIGEST),)))
    undo = CreateUndo(provisioner.node, a_job(provisioner.node), task, Reason.VERIFICATION_FAILED)
    assert await provisioner.effects.apply([undo]) is None
    assert await provisioner.effects.apply([undo]) == provisioner.cache.timings.nodes.name_taken
    assert len(provisioner.jobs) == 1


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
    assert provisioner.cache.in_progress() == {provisioner.node.uid: SLOT}
    before = provisioner.ended
    await provisioner.effects.find_requested_job("node-1")
    assert provisioner.shown == (provisioner.jobs if arrived else [])
    assert provisioner.cache.in_progress() == {}
    assert provisioner.ended == before + 1, "the planner may look at the slot again"


SHIM_SLOT = Entry(DIGEST, 1, 5, ("spin",))


@pytest.fixture
def doubtful(provisioner: Provisioner) -> Provisioner:
    """Its node has a slot for an obsolete Shim, from a former leader, and no Job."""
    show_ledger(provisioner.cache, Ledger({provisioner.node.uid: SHIM_SLOT}))
    return provisioner


async def test_work_that_a_former_leader_may_have_started_is_planned_as_a_removal(doubtful: Provisioner) -> None:
    uid = doubtful.node.uid
    outcome = plan(fleet_snapshot(doubtful.cache, doubtful.kube.now(), Workloads()))
    entry = outcome.ledger.entries[uid]
    assert (entry.digest, entry.shims, entry.unconfirmed) == (NOTHING, ("spin",), True)
    assert [node.uid for node in outcome.unconfirmed] == [uid]
    assert outcome.released == ()
    show_ledger(doubtful.cache, outcome.ledger)
    again = plan(fleet_snapshot(doubtful.cache, doubtful.kube.now(), Workloads()))
    assert (again.ledger, again.unconfirmed) == (outcome.ledger, ())
    [made] = decide(await Gather(doubtful.kube, doubtful.cache).snapshot("node-1"))
    assert isinstance(made, CreateJob)
    assert made.task.unconfirmed == {"spin"}
    await doubtful.effects.apply([made])
    [job] = doubtful.kube.objects(JOBS)
    assert job["metadata"]["labels"][names.LABEL_OPERATION] == REMOVE
    assert job["metadata"]["annotations"][names.ANNOTATION_UNCONFIRMED] == "spin"


async def test_a_slot_without_a_requested_job_is_freed_with_the_target(doubtful: Provisioner) -> None:
    doubtful.cache.left_nothing((doubtful.node.uid, DIGEST, 1))
    assert plan(fleet_snapshot(doubtful.cache, doubtful.kube.now(), Workloads())).released == (doubtful.node.uid,)


@pytest.mark.parametrize(("answer", "certain"), [(403, True), (503, False)])
async def test_only_of_a_job_that_was_refused_it_is_certain_that_there_was_none(
    doubtful: Provisioner, answer: int, certain: bool
) -> None:
    target = Target((("spin", DIGEST),))
    show_ledger(doubtful.cache, Ledger({doubtful.node.uid: Entry(target.digest, 1, 5, ("spin",))}))
    doubtful.kube.answer_next(
        9, lambda _: status_reply(answer, "No", "no"), when=lambda request: request.path.endswith("/jobs")
    )
    with pytest.raises(KubeError):
        await doubtful.effects.apply([CreateJob(doubtful.node, Task(target), 1)])
    assert bool(doubtful.cache._certain) == certain


async def test_no_change_of_a_job_deleted_here_is_unconfirmed(doubtful: Provisioner) -> None:
    job = a_job(doubtful.node, name="its-job")
    await doubtful.effects.apply([DeleteJob(job, Reason.OPTED_OUT, foreground=False)])
    assert doubtful.cache._certain == {job.tried}


async def test_of_a_job_that_could_not_be_deleted_it_is_not_certain_what_it_did(doubtful: Provisioner) -> None:
    job = a_job(doubtful.node, name="its-job")
    doubtful.kube.fail_next(1, when=lambda request: request.method == "DELETE")
    with pytest.raises(Unavailable):
        await doubtful.effects.apply([DeleteJob(job, Reason.OPTED_OUT, foreground=False)])
    assert doubtful.cache._certain == set()


async def test_confirmed_attempts_are_forgotten_with_their_slot(doubtful: Provisioner) -> None:
    tried = (doubtful.node.uid, DIGEST, 1)
    doubtful.cache.left_nothing(tried)
    doubtful.cache.left_nothing(("another", DIGEST, 1))
    await doubtful.rollout.write_ledger(Plan(Ledger({doubtful.node.uid: SHIM_SLOT})))
    assert doubtful.cache._certain == {tried}
