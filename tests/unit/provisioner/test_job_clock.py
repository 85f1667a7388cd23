"""When an installer Job counts as stuck, by our own clock alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from provisioner.domain.job_clock import JobClock
from trellis.provisioning.views import JobState
from trellis_dev.testing.builders import a_job, a_node

NODE = a_node()
DEADLINE, GRACE = 600.0, 60.0


class Time:
    now = 5000.0

    def __call__(self) -> float:
        return self.now


def test_a_job_with_an_unenforced_deadline_is_stuck_after_deadline_and_grace_period() -> None:
    time, job = Time(), a_job(NODE, created_at=1)
    clock = JobClock(DEADLINE, GRACE, time)
    clock.change(None, job)
    assert clock.left(job) == DEADLINE + GRACE
    time.now += DEADLINE + GRACE
    assert clock.left(job) == 0


@pytest.mark.parametrize(
    "end", [{"failure_target": "DeadlineExceeded"}, {"deleting": True}], ids=["given up", "deleting"]
)
def test_a_job_that_is_about_to_end_has_the_grace_from_then(end: dict[str, object]) -> None:
    time, job = Time(), a_job(NODE)
    clock = JobClock(DEADLINE, GRACE, time)
    clock.change(None, job)
    time.now += 10
    ending = replace(job, **end)
    clock.change(job, ending)
    assert clock.left(ending) == GRACE
    time.now += 1
    clock.change(ending, replace(ending, resource_version="9"))
    assert clock.left(ending) == GRACE - 1


def test_a_job_that_ended_or_was_never_seen_is_not_stuck() -> None:
    time, job = Time(), a_job(NODE)
    clock = JobClock(DEADLINE, GRACE, time)
    assert clock.left(job) == math.inf
    clock.change(None, job)
    ended = replace(job, state=JobState.FAILED)
    clock.change(job, ended)
    time.now += 10_000
    assert clock.left(ended) == math.inf
    clock.change(ended, None)
    assert not clock.since


def test_the_age_of_a_finished_job_counts_from_its_observation() -> None:
    time, job = Time(), a_job(NODE)
    clock = JobClock(DEADLINE, GRACE, time)
    assert clock.done_for(job) == 0
    clock.change(None, job)
    time.now += 100
    assert clock.done_for(job) == 0
    done = replace(job, state=JobState.COMPLETE, finished_at=1)
    clock.change(job, done)
    assert clock.done_for(done) == 0
    time.now += 7
    clock.change(done, replace(done, resource_version="9"))
    assert clock.done_for(done) == 7
