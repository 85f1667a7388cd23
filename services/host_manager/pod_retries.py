"""When what runs the pods of a group is asked to try again, because pods are refused.

In: snapshots. Out: the seconds until the next attempt. Called by ``gather``, ``apply`` and ``app``. Why: a quota or a
policy that refuses pods makes the controllers of ReplicaSets and DaemonSets wait, twice as long after each attempt, up
to 16 minutes. Any change of the object has them try at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from host_manager.domain.snapshot import Snapshot
from host_manager.domain.status import refused_workload
from trellis.kube.timings import RefusalTimings


@dataclass(slots=True)
class PodRetries:
    """By group whose pods are refused, monotonic: when the next attempt is due."""

    timings: RefusalTimings = field(default_factory=RefusalTimings)
    _due: dict[str, float] = field(default_factory=dict)

    def fill(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with whether pods that are refused are to be tried again now."""
        key = snapshot.head.key
        if refused_workload(snapshot) is None:
            self.forget(key)
        elif key not in self._due:
            self.tried(key)  # by the controller itself, a moment ago
        return replace(snapshot, retry_pods=self.left(key) == 0.0)

    def left(self, key: str) -> float | None:
        """Return the seconds until the next attempt, None if nothing is refused."""
        due = self._due.get(key)
        return None if due is None else max(0.0, due - time.monotonic())

    def tried(self, key: str) -> None:
        """Take note of an attempt."""
        self._due[key] = time.monotonic() + self.timings.bound(len(self._due))

    def forget(self, key: str) -> None:
        """Forget a group that is gone, or whose pods are not refused."""
        self._due.pop(key, None)
