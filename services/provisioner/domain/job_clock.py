"""Measures how long installer Jobs run, by the clock of this process.

In: changes of Jobs from the informer. Out: the seconds until a Job counts as stuck. Filled by ``watches``, read by
``gather``. Invariants: a Job is stuck at the latest when its deadline and the grace have passed since this process saw
it; one that Kubernetes marked for failure, or that is being deleted, when the grace has passed since then; one that
succeeded, whose Node cannot be labelled, as one that was created when it ended. No other machine's clock counts.
Source: a Job is not ``Failed`` before all of its pods have ended (KEP-3939, ``FailureTarget``), so one pod that hangs
in Terminating keeps it active without end; an admission policy may remove the deadline or suspend the Job.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from trellis.provisioning.views import JobState, JobView


class Phase(Enum):
    """Phase of a Job."""

    WORKING = auto()
    ENDING = auto()
    DONE = auto()


@dataclass(eq=False)
class JobClock:
    """Clock of Jobs. ``deadline`` and ``grace`` in seconds, those of every Job; ``now``: a monotonic clock in seconds.

    ``since``: by UID, the phase of a Job and its start.
    """

    deadline: float
    grace: float
    now: Callable[[], float]
    since: dict[str, tuple[Phase, float]] = field(default_factory=dict)

    def change(self, old: JobView | None, new: JobView | None) -> None:
        """Record one change of an informer."""
        phase = _phase_of(new) if new is not None else None
        if new is None or phase is None:
            if old is not None:
                self.since.pop(old.uid, None)
            return
        if new.uid not in self.since or self.since[new.uid][0] is not phase:
            self.since[new.uid] = (phase, self.now())

    def left(self, job: JobView) -> float:
        """Return the seconds until a Job is stuck, 0 if it is; infinite for one that failed."""
        if job.uid not in self.since:
            return math.inf
        phase, since = self.since[job.uid]
        return max(0.0, since + self.grace + (0.0 if phase is Phase.ENDING else self.deadline) - self.now())

    def done_for(self, job: JobView) -> float:
        """Return the seconds since this process observed the success of a Job, 0 without success."""
        phase, since = self.since.get(job.uid, (Phase.WORKING, 0.0))
        return self.now() - since if phase is Phase.DONE else 0.0


def _phase_of(job: JobView) -> Phase | None:
    if job.deleting or job.failure_target:
        return Phase.ENDING
    return {JobState.ACTIVE: Phase.WORKING, JobState.COMPLETE: Phase.DONE}.get(job.state)


def at_work(job: JobView) -> bool:
    """Return whether pods of a Job may still run."""
    return job.deleting or job.state is JobState.ACTIVE
