"""An index of installer Jobs by node.

In: changes of Job views. Out: the Jobs of a Node, by name or UID. Called by ``node_watcher`` and ``provisioner``.
Invariant: contains exactly the Jobs of the informer.
"""

from __future__ import annotations

from collections.abc import Iterator

from trellis.provisioning.views import JobState, JobView


class JobIndex:
    """Jobs by name and by UID of their Node."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, JobView]] = {}
        self._by_uid: dict[str, dict[str, JobView]] = {}

    def change(self, old: JobView | None, new: JobView | None) -> None:
        """Apply one change of an informer: ``old`` None is an addition, ``new`` None a deletion."""
        if old is not None:
            _drop(self._by_name, old.node, old.uid)
            _drop(self._by_uid, old.node_uid, old.uid)
        if new is not None:
            self._by_name.setdefault(new.node, {})[new.uid] = new
            self._by_uid.setdefault(new.node_uid, {})[new.uid] = new

    def refresh(self, job: JobView) -> None:
        """Store the newer of two equal views, as the next write needs its resourceVersion."""
        self.change(job, job)

    def of_name(self, node: str) -> tuple[JobView, ...]:
        """Return the Jobs of a node name, including those of a former Node of that name."""
        return tuple(self._by_name.get(node, {}).values())

    def of_uid(self, uid: str) -> tuple[JobView, ...]:
        """Return the Jobs of the Node with this UID."""
        return tuple(self._by_uid.get(uid, {}).values())

    def by_uid(self) -> dict[str, tuple[JobView, ...]]:
        """Return all Jobs by UID of their Node."""
        return {uid: tuple(jobs.values()) for uid, jobs in self._by_uid.items()}

    def running(self) -> int:
        """Return the number of Jobs that are neither finished nor being deleted."""
        jobs = (job for of_node in self._by_uid.values() for job in of_node.values())
        return sum(job.state is JobState.ACTIVE and not job.deleting for job in jobs)

    def names(self) -> Iterator[str]:
        """Return the node names that have Jobs."""
        return iter(tuple(self._by_name))


def _drop(index: dict[str, dict[str, JobView]], key: str, uid: str) -> None:
    jobs = index.get(key, {})
    jobs.pop(uid, None)
    if not jobs:
        index.pop(key, None)
