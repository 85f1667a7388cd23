"""Due events about a workload: first run, failures, recovery, restarts of the service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.domain.workloads.decide import Cause, Observed, Workload, decide
from provisioner.domain.workloads.published import Published, State
from trellis.events.wasm_workloads import WasmWorkloadEventData, WasmWorkloadFailed, WasmWorkloadRecovered

NOW, STEADY = 1000.0, 30.0
OWNER = Workload("shop", "apps/v1", "Deployment", "hello", "u1")
JOB = replace(OWNER, kind="CronJob", api_version="batch/v1")


def works(name: str = "a", since: float = 0.0, created: float = 0.0, *, ended: bool = False) -> Observed:
    return Observed(name, f"uid-{name}", "spin-v2", "n1", created, works=True, ended=ended, steady_since=since)


def fails(name: str = "b", reason: str = "ShimError", created: float = 0.0, *, ended: bool = False) -> Observed:
    return Observed(name, f"uid-{name}", "spin-v2", "n1", created, ended=ended, cause=Cause(reason, "words"))


def progresses(name: str = "c") -> Observed:
    return Observed(name, f"uid-{name}", "spin-v2")


def refused(reason: str = "PodsRefused", at: float = 5.0) -> Observed:
    return Observed("", "", "spin-v2", created_at=at, cause=Cause(reason, "words"))


class PublishedEvents:
    """A workload whose events are published, as by the reconciler."""

    def __init__(self, owner: Workload = OWNER) -> None:
        self.owner, self.published, self.events = owner, Published(), list[WasmWorkloadEventData]()

    def see(self, *pods: Observed, now: float = NOW) -> list[str]:
        decision = decide(self.owner, pods, self.published.states.get(self.owner.key), now, STEADY)
        for event in decision.events:
            self.published.note(event)
        self.events += decision.events
        again = decide(self.owner, pods, self.published.states.get(self.owner.key), now, STEADY)
        assert not again.events, "the same pods cause nothing twice"
        return [f"{event.event_name} {getattr(event, 'reason', '')}".strip() for event in decision.events]


def test_a_workload_runs_once_all_its_pods_work() -> None:
    published_events = PublishedEvents()
    assert published_events.see() == []
    assert published_events.see(works(), progresses()) == []
    assert published_events.see(works(), works("b", 5.0)) == ["running"]
    assert (published_events.events[0].pod, published_events.events[0].pods) == ("b", 2)
    assert published_events.see(works(), works("b"), works("new")) == []


def test_each_reason_is_published_once_until_the_workload_has_recovered() -> None:
    published_events = PublishedEvents()
    assert published_events.see(works(), fails()) == ["failed ShimError"]
    [event] = published_events.events
    assert isinstance(event, WasmWorkloadFailed)
    assert (event.pod, event.failing, event.pods, event.runtime_class) == ("b", 1, 2, "spin-v2")
    assert published_events.see(fails("other")) == []
    assert published_events.see(fails("b", "OutOfMemory"), fails("d")) == ["failed OutOfMemory"]
    assert published_events.see(works("b", NOW - 1)) == [], "a crashing container works in between"
    assert (
        decide(OWNER, [works("b", NOW - 1)], published_events.published.states[OWNER.key], NOW, STEADY).look_in
        == STEADY - 1
    )
    assert published_events.see(works("b", NOW - 1), progresses(), now=NOW + 60) == [], "a pod without known cause"
    assert published_events.see(works("b", NOW - 1), now=NOW + 60) == ["recovered"]
    recovered = published_events.events[-1]
    assert isinstance(recovered, WasmWorkloadRecovered)
    assert (recovered.reasons, recovered.pod) == (("ShimError", "OutOfMemory"), "b")
    assert published_events.see(fails()) == ["failed ShimError"]


def test_a_clock_of_a_kubelet_that_is_ahead_does_not_delay_the_recovery() -> None:
    published_events = PublishedEvents()
    published_events.see(fails())
    ahead = works("ahead", NOW + 3600)
    assert published_events.see(ahead, works("b", NOW - 5)) == [], "the other pod is ready for 5 s"
    assert published_events.see(ahead, works("b", NOW - 5), now=NOW + STEADY) == ["recovered"]


def test_refused_pods_are_a_failure_without_a_pod() -> None:
    published_events = PublishedEvents()
    assert published_events.see(refused()) == ["failed PodsRefused"]
    assert published_events.see(works(), refused("RuntimeClassMissing")) == ["failed RuntimeClassMissing"]
    first, second = published_events.events
    assert isinstance(first, WasmWorkloadFailed)
    assert isinstance(second, WasmWorkloadFailed)
    assert (first.pod, first.pod_uid, first.pods, first.failing, first.runtime_class) == ("", "", 0, 0, "spin-v2")
    assert (second.pods, second.failing, second.message) == (1, 0, "words")
    assert published_events.see(works(), replace(refused(), cause=None)) == [], "not all pods exist yet"
    assert published_events.see(works(), works("b")) == ["recovered"]


def test_of_refused_and_existing_pods_an_existing_one_is_named() -> None:
    published_events = PublishedEvents()
    assert published_events.see(refused("RuntimeClassMissing"), fails("b", "RuntimeClassMissing")) == [
        "failed RuntimeClassMissing"
    ]
    [event] = published_events.events
    assert isinstance(event, WasmWorkloadFailed)
    assert (event.pod, event.pods, event.failing) == ("b", 1, 1)


def test_a_later_run_that_is_refused_counts_in_place_of_an_earlier_failed_one() -> None:
    published_events = PublishedEvents(JOB)
    assert published_events.see(fails(created=1.0, ended=True), refused(at=2.0)) == ["failed PodsRefused"]


def test_a_workload_without_pods_keeps_its_failure_for_a_while() -> None:
    published_events = PublishedEvents()
    published_events.see(fails())
    assert published_events.see() == []
    published_events.published.keep((), NOW, 600)
    assert published_events.see(fails("successor")) == []
    published_events.published.keep((OWNER.key,), NOW + 500, 600)
    published_events.published.keep((), NOW + 700, 600)
    assert published_events.published.states, "it had pods in between"
    published_events.published.keep((), NOW + 1301, 600)
    assert not published_events.published.states
    assert not published_events.published.absent


def test_another_object_of_the_same_name_is_another_workload() -> None:
    published_events = PublishedEvents()
    published_events.see(fails())
    published_events.owner = replace(OWNER, uid="u2")
    assert published_events.see(works()) == ["running"]
    assert published_events.published.states[OWNER.key] == State("u2", (), ("uid-a",))


@pytest.mark.parametrize(("owner", "ended"), [(OWNER, False), (JOB, True)], ids=["deployment", "job"])
def test_a_failed_pod_does_not_count_once_its_successor_exists(owner: Workload, ended: bool) -> None:
    published_events = PublishedEvents(owner)
    assert published_events.see(fails(created=1.0, ended=True)) == ["failed ShimError"]
    assert published_events.see(fails(created=1.0, ended=True), works("a", ended=ended, created=2.0)) == ["recovered"]


def test_a_pod_that_completed_is_no_pod_of_an_owner_whose_pods_are_to_run() -> None:
    published_events = PublishedEvents()
    assert published_events.see(works("a", ended=True)) == [], "the shutdown of a node has ended it"
    assert published_events.see(works("a", ended=True), fails()) == ["failed ShimError"]
    assert published_events.see(works("a", ended=True), progresses()) == []


def test_a_failed_pod_of_a_parallel_job_counts_beside_those_that_work() -> None:
    published_events = PublishedEvents(replace(JOB, kind="Job"))
    others = [works(name, created=5.0) for name in "ac"]
    assert published_events.see(*others, fails(created=5.0, ended=True)) == ["failed ShimError"]


def test_a_later_run_of_a_job_that_fails_counts_beside_an_earlier_one_that_completed() -> None:
    published_events = PublishedEvents(JOB)
    first = works("a", ended=True, created=1.0)
    assert published_events.see(first) == ["running"]
    assert published_events.see(first, fails(created=2.0, ended=True)) == ["failed ShimError"]


def test_the_last_event_of_each_subject_restores_the_state() -> None:
    published_events = PublishedEvents()
    published_events.see(fails())
    published_events.see(works("b", 0.0), now=NOW + 60)
    published_events.see(fails("b", "OutOfMemory"))
    restored, last = Published(), {(type(event), event.key()): event for event in published_events.events}
    for event in published_events.events:
        if event is last[type(event), event.key()]:
            restored.note(event)
            restored.note(event)
    assert restored.states == published_events.published.states


def test_former_owners_that_existed_for_one_run_are_not_restored() -> None:
    restored, jobs = (
        Published(),
        [replace(JOB, kind="Job", name=f"run-{number}", uid=f"u{number}") for number in (1, 2)],
    )
    for owner in (OWNER, *jobs):
        for event in decide(owner, [fails()], None, NOW, STEADY).events:
            restored.restore(event, {"u2"})
    assert set(restored.states) == {OWNER.key, jobs[1].key}
