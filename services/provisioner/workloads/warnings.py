"""Warning Events on the owners of pods that do not run.

In: workloads with their pods. Out: Events with the reason and the cause of ``trellis explain``. Called by the
reconciler of workloads. Invariants: at most one Event per owner and reason in ``warn_again`` seconds, also after a
change of the leader, because the Events of the former one are read; many owners in a namespace that fail for one reason
share a rate limit, because a controller can create an owner per second, and a repeated Event waits for the first ones
of other owners; memory is bounded.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from provisioner.domain.workloads.decide import Observed, Workload, by_reason
from provisioner.timings import WorkloadTimings
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError
from trellis.kube.reader import Selection
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import EVENTS
from trellis.limits.token_bucket import TokenBucket
from trellis.read_model.wasm_pods.counted_pods import counted
from trellis.read_model.wasm_pods.pods import view_event
from trellis.read_model.wasm_pods.reasons import ORDER
from trellis.telemetry import get_logger

_log = get_logger(__name__)
BURST: Final = 10
"""Owners of a namespace with Events for one reason; afterwards one per ``warn_refill`` seconds."""
_REMEMBERED: Final = 4096


@dataclass(slots=True)
class _Limit:
    """The limit of a namespace for a reason. ``awaited``: when it delayed the first Event of an owner, monotonic."""

    bucket: TokenBucket
    awaited: float = -math.inf


@dataclass(eq=False)
class Warnings:
    """Times of the last Events by UID of the owner and reason. ``enabled``: False by the setting."""

    kube: Kube
    recorder: EventRecorder
    timings: WorkloadTimings
    enabled: bool = True
    _written: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)
    _limits: OrderedDict[tuple[str, str], _Limit] = field(default_factory=OrderedDict)
    _recalled: bool = False

    async def warn(self, workload: Workload, pods: Iterable[Observed]) -> None:
        """Write the Events that are due; never raises."""
        if not self.enabled or not await self._recall():
            return
        for reason, failing in by_reason(counted(workload.kind, [*pods])).items():
            pod = failing[0]
            if pod.cause is not None and self._is_due(workload, reason):
                place = ObjectRef(workload.api_version, workload.kind, workload.name, workload.uid, workload.namespace)
                await self.recorder.record(regarding=place, type="Warning", reason=reason, message=pod.cause.message)

    async def _recall(self) -> bool:
        """Read the Events of former leaders, once; return False if the API server did not answer."""
        if self._recalled:
            return True
        found: list[tuple[float, str, str]] = []
        fields = f"reportingComponent={self.recorder.component},type=Warning"
        try:
            async for page in self.kube.pages(Selection(EVENTS, None, None, fields)):
                found = [] if page.first else found
                views = [view for view in map(view_event, page.items) if view.reason in ORDER]
                found += [(self.kube.now() - view.at, view.uid, view.reason) for view in views]
        except Forbidden:
            pass  # each owner gets one Event more
        except KubeError as error:
            _log.warning("Warning Events about workloads are delayed", error=str(error))
            return False
        for age, uid, reason in sorted(found, reverse=True):
            if age < self.timings.warn_again:
                self._remember((uid, reason), time.monotonic() - max(0.0, age))
        self._recalled = True
        return True

    def _is_due(self, workload: Workload, reason: str) -> bool:
        now, identity, shared = time.monotonic(), (workload.uid, reason), (workload.namespace, reason)
        former = self._written.get(identity)
        if former is not None and now - former < self.timings.warn_again:
            return False
        limit = self._limits.setdefault(shared, _Limit(TokenBucket(1 / self.timings.warn_refill, BURST)))
        self._limits.move_to_end(shared)
        while len(self._limits) > _REMEMBERED:
            self._limits.popitem(last=False)
        # An owner whose Event was delayed is evaluated again after ``look``.
        if former is not None and now - limit.awaited < 2 * self.timings.look:
            return False
        if not limit.bucket.take(now):
            limit.awaited = now if former is None else limit.awaited
            return False
        self._remember(identity, now)
        return True

    def _remember(self, identity: tuple[str, str], now: float) -> None:
        self._written[identity] = now
        self._written.move_to_end(identity)
        while len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)
