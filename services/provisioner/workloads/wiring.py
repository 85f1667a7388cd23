"""Wires the reports about workloads for one leadership term.

In: the cache of provisioner, its views of RuntimeClasses, clients. Out: a queue with its run, and a background task.
Called by ``provisioner.app``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from provisioner.cache import Cache
from provisioner.domain.shim_snapshot import RuntimeClassView
from provisioner.domain.workloads.classes import provided_classes
from provisioner.workloads.evidence import Evidence
from provisioner.workloads.finished_owners import FinishedOwners
from provisioner.workloads.gather import Gather
from provisioner.workloads.metrics import PodNumbers
from provisioner.workloads.owners import Owners
from provisioner.workloads.pods import WorkloadPod, WorkloadPods
from provisioner.workloads.reconciler import KEY, WorkloadReconciler
from provisioner.workloads.refused_creations import RefusedCreation, RefusedCreations
from provisioner.workloads.refused_owners import RefusedOwners
from provisioner.workloads.warnings import Warnings
from provisioner.workloads.watches import PodWatch
from trellis.bus.consume.queue import KeyedQueue
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.kube.recorder import EventRecorder
from trellis.runtime.run import Base


class Workloads:
    """The components. ``classes``: views by name; ``classes_known``: whether these are all."""

    def __init__(
        self,
        base: Base,
        cache: Cache,
        recorder: EventRecorder,
        classes: Mapping[str, RuntimeClassView],
        classes_known: Callable[[], bool],
    ) -> None:
        kube: Kube = base.kube
        self._classes, self._cache, timings = classes, cache, cache.timings.workloads
        self.queue = KeyedQueue[str](workers=1, name="workloads", telemetry=base.telemetry)
        creations = RefusedCreations(kube.now, timings.refused_for)
        self.watch = PodWatch(
            *(kube, self._provided, self._take, self._take_refusal, self.list_all, timings.classes, creations)
        )
        owners = Owners(kube)
        self._refused = RefusedOwners(kube, owners, creations, self._provided, timings)
        gather = Gather(cache, classes, classes_known, Evidence(kube, timings), self._refused, timings)
        finished = FinishedOwners(kube, timings)
        self._numbers = PodNumbers(
            base.telemetry, self._handler_of, owners.known, gather.cause_of, finished.is_needless
        )
        self.reconciler = WorkloadReconciler(
            kube,
            base.bus,
            base.telemetry,
            self.watch,
            owners,
            gather,
            Warnings(kube, recorder, timings, enabled=cache.settings.workload_warnings),
            self._numbers,
            finished,
            timings,
        )

    @property
    def pods(self) -> WorkloadPods:
        """The pods of the RuntimeClasses of Shims; complete while ``watch.known``."""
        return self.watch.pods

    async def run(self) -> None:
        """Watch pods until cancelled; metrics and notes end with the leadership term."""
        try:
            await self.watch.run()
        finally:
            self._numbers.show(())
            self._refused.end()

    def followed(self, handle: Callable[[Change[Any]], None]) -> Callable[[Change[Any]], None]:
        """Return a handler of Shims or RuntimeClasses that also compares the RuntimeClasses that Shims provide."""

        def handle_both(change: Change[Any]) -> None:
            handle(change)
            self.watch.classes_changed()

        return handle_both

    def list_all(self) -> None:
        """Evaluate all workloads."""
        self.reconciler.list_all()
        self.queue.add(KEY)

    def _take(self, change: Change[WorkloadPod]) -> None:
        self.reconciler.take(change)
        self.queue.add_after(KEY, self._cache.timings.workloads.settle)

    def _take_refusal(self, change: Change[RefusedCreation]) -> None:
        self.reconciler.take_refusal(change)
        self.queue.add_after(KEY, self._cache.timings.workloads.settle)

    def _provided(self) -> frozenset[str]:
        return provided_classes(self._cache.shims.values(), self._classes.values())

    def _handler_of(self, runtime_class: str) -> str:
        """Return the handler of a RuntimeClass, of one that does not exist that of the Shim that names it."""
        if (found := self._classes.get(runtime_class)) is not None:
            return found.handler
        shims = self._cache.shims.values()
        return next((shim.handler for shim in shims if shim.runtime_class == runtime_class), "")
