"""The election over the API server in memory: what only clocks and faults bring about."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from support.cluster.kube_world import configmap, until
from trellis.kube.errors import NotLeading
from trellis.kube.leader import Leader, StillRunning
from trellis.kube.lease import new_lease, read_lease, with_holder
from trellis.kube.resources import CONFIGMAPS, LEASES, Manifest
from trellis.kube.timings import LeaderTimings
from trellis.kube.transport import HttpRequest, Reply
from trellis.limits.backoff import Backoff
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

QUICK = LeaderTimings(duration=2, renew_deadline=0.6, renew=0.1, retry=0.05, call_timeout=0.3)


class Clock:
    """A clock tests can set; it is also moved by the seconds the test really takes."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("trellis.kube.leader.boot_clock", clock)
    return clock


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


def candidate(kube: FakeKube, identity: str = "me", timings: LeaderTimings = QUICK) -> Leader:
    return Leader(kube, lease="trellis-test", namespace="default", identity=identity, timings=timings)


def lease_of(kube: FakeKube) -> Manifest:
    (lease,) = kube.objects(LEASES)
    return lease


def holder(kube: FakeKube) -> str:
    return str(lease_of(kube)["spec"].get("holderIdentity"))


def held_by(identity: str, renewed: str, duration: int = 2) -> Manifest:
    spec = {"holderIdentity": identity, "renewTime": renewed, "leaseDurationSeconds": duration, "leaseTransitions": 4}
    return new_lease("trellis-test", "default") | {"spec": spec}


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def wait_for_ever(_: asyncio.Event) -> None:
    await asyncio.Event().wait()


async def test_a_stopped_process_stops_writing_before_anything_else(kube: FakeKube, clock: Clock) -> None:
    """SIGSTOP for 30 s: the guard knows by the clock, before any task of the loop has run."""
    leader = candidate(kube)
    task = asyncio.create_task(leader.run(wait_for_ever, asyncio.Event()))
    await until(lambda: leader.leading, "leading")
    leader.check()
    clock.ahead += 30
    assert not leader.leading
    with pytest.raises(NotLeading, match=r"^me\b.*\bdefault/trellis-test\b"):
        await kube.guarded(leader.check).create(CONFIGMAPS, configmap("default", "a"))
    await end(task)


async def test_a_leader_is_uncertain_before_another_may_take_its_lease(kube: FakeKube, clock: Clock) -> None:
    leader = candidate(kube)
    task = asyncio.create_task(leader.run(wait_for_ever, asyncio.Event()))
    await until(lambda: leader.leading, "leading")
    clock.ahead += QUICK.renew_deadline
    assert not leader.leading, "although nobody may take the lease yet"
    await end(task)


async def test_the_work_is_cancelled_when_no_renewal_succeeds_in_time(kube: FakeKube, clock: Clock) -> None:
    leader, cancelled = candidate(kube), asyncio.Event()

    async def lead(_: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert not leader.leading, "no write is possible while the work ends"
            cancelled.set()

    task = asyncio.create_task(leader.run(lead, asyncio.Event()))
    await until(lambda: leader.leading, "leading")
    gauge = kube.telemetry.metrics.leader.labels("test")
    assert gauge._value.get() == 1
    kube.fail_next(10**6)
    began = clock()
    await asyncio.wait_for(cancelled.wait(), 5)
    assert clock() - began <= QUICK.renew_deadline + 0.3
    await until(lambda: gauge._value.get() == 0, "the gauge")
    assert holder(kube) == "me", "nothing is written by a former leader"
    await end(task)


async def test_a_lease_is_expired_only_when_it_did_not_change_for_its_duration(kube: FakeKube, clock: Clock) -> None:
    """The times in the lease are another machine's: years behind, or ahead, they mean nothing."""
    kube.put(LEASES, held_by("other", "1999-01-01T00:00:00.000000Z"))
    leader = candidate(kube)
    task = asyncio.create_task(leader.run(wait_for_ever, asyncio.Event()))
    for number in range(4):
        before = len(kube.api.requests)
        await until(lambda before=before: len(kube.api.requests) > before + 1, "another look")  # type: ignore[misc]
        assert holder(kube) == "other"
        clock.ahead += 1.5
        kube.put(LEASES, held_by("other", f"1999-01-01T00:00:0{number}.000000Z"))
    assert holder(kube) == "other"
    before = len(kube.api.requests)
    await until(lambda: len(kube.api.requests) > before + 1, "the last renewal is seen")
    clock.ahead += 2.1
    await until(lambda: leader.leading, "leading")
    assert lease_of(kube)["spec"]["leaseTransitions"] == 5
    await end(task)


async def test_a_foreign_lease_with_a_duration_of_days_expires_after_a_minute(kube: FakeKube, clock: Clock) -> None:
    kube.put(LEASES, held_by("stranger", "2049-01-01T00:00:00.000000Z", duration=2_000_000))
    leader = candidate(kube)
    task = asyncio.create_task(leader.run(wait_for_ever, asyncio.Event()))
    await until(lambda: len(kube.api.requests) > 1, "it looks")
    clock.ahead += 50
    before = len(kube.api.requests)
    await until(lambda: len(kube.api.requests) > before + 1, "it looks again")
    assert holder(kube) == "stranger"
    clock.ahead += 11
    await until(lambda: leader.leading, "leading")
    await end(task)


async def test_a_stranger_that_renews_for_ever_makes_the_candidate_not_ready(kube: FakeKube) -> None:
    """Taken from one of Trellis: the lease still names that one as its last holder of Trellis."""
    lease = with_holder(new_lease("trellis-test", "default"), identity="fellow", duration=2, now=datetime.now(UTC))
    kube.put(LEASES, lease)
    task = asyncio.create_task(candidate(kube).run(wait_for_ever, asyncio.Event()))
    await until(lambda: kube.health.parts().get("lease trellis-test") is True, "ready beside a fellow")
    assert not kube.health.notes()
    for number in range(3):
        lease["spec"] |= {"holderIdentity": "stranger", "renewTime": f"2026-01-01T00:00:0{number}.000000Z"}
        kube.put(LEASES, lease)
        before = len(kube.api.requests)
        await until(lambda before=before: len(kube.api.requests) > before + 1, "another look")  # type: ignore[misc]
        assert "stranger" in " ".join(kube.health.readiness().reasons)
    kube.put(LEASES, with_holder(lease, identity="fellow", duration=2, now=datetime.now(UTC)))
    await until(lambda: kube.health.readiness().ok, "ready once a fellow has it again")
    await end(task)


async def test_a_holder_without_a_mark_is_noted_and_leaves_the_candidate_ready(kube: FakeKube) -> None:
    """An unknown process created the lease, or a replica of a release that did not annotate it: both look alike."""
    kube.put(LEASES, held_by("unmarked", "2026-01-01T00:00:00.000000Z"))
    task = asyncio.create_task(candidate(kube).run(wait_for_ever, asyncio.Event()))
    await until(lambda: "unmarked" in " ".join(kube.health.notes()), "the note")
    assert kube.health.readiness().ok
    kube.put(LEASES, held_by("", "2026-01-01T00:00:01.000000Z"))
    await until(lambda: holder(kube) == "me" and not kube.health.notes(), "no note once it leads")
    await end(task)


async def test_a_lease_of_its_own_from_a_backup_ends_the_term(kube: FakeKube) -> None:
    """Every read and write of the term since the backup may be undone: the next term reads it all again."""
    terms: list[asyncio.Event] = []

    async def lead(_: asyncio.Event) -> None:
        ended = asyncio.Event()
        terms.append(ended)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    leader = candidate(kube)
    task = asyncio.create_task(leader.run(lead, asyncio.Event()))
    await until(lambda: len(terms) == 1 and leader.leading, "leading")
    backup = lease_of(kube)
    renewed = backup["spec"]["renewTime"]
    await until(lambda: lease_of(kube)["spec"]["renewTime"] > renewed, "a renewal")
    kube.api.store.tables[LEASES].objects["default", "trellis-test"] = backup
    await until(lambda: len(terms) == 2 and leader.leading, "another term")
    assert terms[0].is_set()
    await end(task)


async def test_a_compare_and_swap_that_is_lost_is_no_victory(kube: FakeKube) -> None:
    kube.put(LEASES, held_by("", "1999-01-01T00:00:00.000000Z"))
    leader = candidate(kube)

    def other_is_faster(request: HttpRequest) -> bool:
        if request.method == "PUT":
            kube.api.fault = None
            kube.put(LEASES, held_by("other", "1999-01-01T00:00:01.000000Z", 3600))
        return False

    kube.fail_next(1, when=other_is_faster)
    task = asyncio.create_task(leader.run(wait_for_ever, asyncio.Event()))
    await until(lambda: holder(kube) == "other" and len(kube.writes) == 1, "the race")
    before = len(kube.api.requests)
    await until(lambda: len(kube.api.requests) > before + 3, "further looks")
    assert not leader.leading
    assert len(kube.writes) == 1
    await end(task)


@pytest.mark.parametrize("renewed", ["lost", "1999-01-01T00:00:00.000000Z"], ids=["", "and the clock was set back"])
async def test_a_renewal_whose_answer_was_lost_does_not_cost_the_lease(kube: FakeKube, renewed: str) -> None:
    leader, terms = candidate(kube), 0

    async def lead(_: asyncio.Event) -> None:
        nonlocal terms
        terms += 1
        await asyncio.Event().wait()

    task = asyncio.create_task(leader.run(lead, asyncio.Event()))
    await until(lambda: leader.leading, "leading")
    version = lease_of(kube)["metadata"]["resourceVersion"]
    kube.put(LEASES, lease_of(kube) | {"spec": lease_of(kube)["spec"] | {"renewTime": renewed}})
    await until(lambda: lease_of(kube)["spec"]["renewTime"] != renewed, "renewed")
    assert int(lease_of(kube)["metadata"]["resourceVersion"]) > int(version)
    assert leader.leading
    assert terms == 1
    await end(task)


async def test_a_server_that_is_slow_to_answer_does_not_cost_the_lease(kube: FakeKube) -> None:
    """Two thirds of ``call_timeout`` for each answer: 2 s of 3 s with the timings of services."""
    slow, answers = 0.2, 0

    async def send(request: HttpRequest) -> Reply:
        nonlocal answers
        reply = await answer(request)
        await asyncio.sleep(slow)
        answers += 1
        return reply

    answer = kube.api.send
    kube.api.send = send  # type: ignore[method-assign]
    timings = LeaderTimings(duration=2, renew_deadline=0.6, renew=0.2, retry=0.1, call_timeout=0.3)
    leader, terms = candidate(kube, timings=timings), 0

    async def lead(_: asyncio.Event) -> None:
        nonlocal terms
        terms += 1
        await asyncio.Event().wait()

    task = asyncio.create_task(leader.run(lead, asyncio.Event()))
    await until(lambda: leader.leading, "leading")
    answers = 0
    await until(lambda: answers > 8, "renewals")
    assert terms == 1
    await end(task)


@pytest.mark.parametrize("fails", [True, False])
async def test_work_that_ends_unasked_releases_the_lease_and_restarts(
    kube: FakeKube, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "delay", lambda *_: 0.0)
    leader, terms, held_between = candidate(kube), 0, []

    async def lead(_: asyncio.Event) -> None:
        nonlocal terms
        terms += 1
        if terms == 1:
            if fails:
                raise RuntimeError("a bug")
            return
        held_between.append([write.body for write in kube.writes])
        await asyncio.Event().wait()

    task = asyncio.create_task(leader.run(lead, asyncio.Event()))
    await until(lambda: terms == 2, "a second term")
    assert any(b'"holderIdentity":""' in (body or b"") for body in held_between[0]), "released in between"
    assert not task.done()
    await end(task)


async def test_stop_lets_the_work_finish_under_a_valid_lease_then_releases(kube: FakeKube) -> None:
    leader, stop, finishing = candidate(kube), asyncio.Event(), asyncio.Event()
    log: list[str] = []

    async def lead(stopping: asyncio.Event) -> None:
        await stopping.wait()
        finishing.set()
        # Longer than the renew deadline: the lease has to be renewed meanwhile.
        renewals = len(kube.writes) + round(QUICK.renew_deadline / QUICK.renew) + 2
        await until(lambda: len(kube.writes) >= renewals, "renewals")
        log.append(f"leading={leader.leading} holder={holder(kube)}")

    task = asyncio.create_task(leader.run(lead, stop))
    await until(lambda: leader.leading, "leading")
    stop.set()
    await asyncio.wait_for(finishing.wait(), 5)
    await asyncio.wait_for(task, 5)
    assert log == ["leading=True holder=me"]
    assert holder(kube) == ""
    assert lease_of(kube)["spec"]["leaseDurationSeconds"] == 1


async def test_work_that_is_not_over_keeps_the_lease_from_the_next_one(kube: FakeKube) -> None:
    leader, stop = candidate(kube), asyncio.Event()

    async def lead(stopping: asyncio.Event) -> None:
        await stopping.wait()
        raise StillRunning("still working on node-1")

    task = asyncio.create_task(leader.run(lead, stop))
    await until(lambda: leader.leading, "leading")
    stop.set()
    await asyncio.wait_for(task, 10)
    assert holder(kube) == "me"


async def test_stop_while_following_ends_at_once(kube: FakeKube) -> None:
    kube.put(LEASES, held_by("other", "1999-01-01T00:00:00.000000Z", 3600))
    stop = asyncio.Event()
    task = asyncio.create_task(candidate(kube).run(wait_for_ever, stop))
    await until(lambda: len(kube.api.requests) > 1, "following")
    stop.set()
    await asyncio.wait_for(task, 2)
    assert kube.writes == []


async def test_a_cancelled_campaign_ends_the_work_and_leaves_the_lease_to_expire(kube: FakeKube) -> None:
    leader, ended = candidate(kube), asyncio.Event()

    async def lead(_: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(leader.run(lead, asyncio.Event()))
    await until(lambda: leader.leading, "leading")
    await end(task)
    assert ended.is_set()
    assert not leader.leading
    assert holder(kube) == "me"


def test_timings_that_could_make_two_leaders_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline < duration"):
        LeaderTimings(duration=5, renew_deadline=6)


async def test_a_renewal_answered_too_late_ends_the_term_all_the_same(
    kube: FakeKube, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease in doubt stays lost: in between writes were refused and runs not started."""
    leader = candidate(kube)
    terms: list[float] = []

    async def lead(_: asyncio.Event) -> None:
        terms.append(clock())
        await asyncio.Event().wait()

    task = asyncio.create_task(leader.run(lead, asyncio.Event()))
    await until(lambda: leader.leading, "leading")
    real = leader._renew

    async def slow(timeout: float) -> None:  # noqa: ASYNC109 - as the one it stands for
        await real(timeout)
        clock.ahead += QUICK.renew_deadline
        monkeypatch.setattr(leader, "_renew", real)

    monkeypatch.setattr(leader, "_renew", slow)
    await until(lambda: len(terms) == 2, "a new term, in which everything is built anew")
    assert holder(kube) == "me"
    await end(task)


def test_two_consecutive_renewals_differ_for_any_clock() -> None:
    """A lease that is written as it was is not written at all, and looks to the others as if it was not renewed."""
    stuck = datetime(2026, 1, 1, tzinfo=UTC)
    first = with_holder(new_lease("trellis-test", "default"), identity="me", duration=2, now=stuck)
    again = with_holder(first, identity="me", duration=2, now=stuck)
    assert read_lease(first) != read_lease(again)
    assert read_lease(again) != read_lease(with_holder(again, identity="me", duration=2, now=stuck))
