"""Schedules retries of rejected pods by their controllers.

In: snapshots. Out: the seconds until the next attempt. Called by ``gather``, ``apply`` and ``app``. Why: if a quota or
a policy rejects pods, the controllers of ReplicaSets and DaemonSets back off, twice as long after each attempt, up to
16 minutes. Any change of the object causes an immediate retry.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from host_manager.domain.snapshot import Snapshot
from host_manager.domain.status import refused_workload
from trellis.kube.timings import RefusalTimings


@dataclass(slots=True)
class PodRetries:
    """For each host group with rejected pods the time of the next attempt, in monotonic seconds."""

    timings: RefusalTimings = field(default_factory=RefusalTimings)
    _due: dict[str, float] = field(default_factory=dict)

    def fill(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with ``retry_pods``: whether a retry is due now."""
        key = snapshot.head.key
        if refused_workload(snapshot) is None:
            self.forget(key)
        elif key not in self._due:
            self.tried(key)  # the controller itself made an attempt just now
        return replace(snapshot, retry_pods=self.left(key) == 0.0)

    def left(self, key: str) -> float | None:
        """Return the seconds until the next attempt, None if no pod is rejected."""
        due = self._due.get(key)
        return None if due is None else max(0.0, due - time.monotonic())

    def tried(self, key: str) -> None:
        """Record an attempt."""
        self._due[key] = time.monotonic() + self.timings.bound(len(self._due))

    def forget(self, key: str) -> None:
        """Drop a host group that is deleted, or without rejected pods."""
        self._due.pop(key, None)
