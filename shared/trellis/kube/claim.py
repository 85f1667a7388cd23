"""The claim of one installation on the Nodes of a cluster.

In: a Lease that all installations share. Out: ``run`` works while this installation holds it. Called by the runtime of
node_watcher and provisioner, within a leadership term. Invariants: at most one installation provisions nodes; both
leaders of an installation hold the claim together, so the restart of one does not release it; a waiting installation is
not ready, names the holder, and is recorded on the Lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, KubeError, NotLeading
from trellis.kube.leader import Lead, Leader, StillRunning, readiness_of
from trellis.kube.resources import LEASES
from trellis.kube.timings import HandoverTimings, LeaderTimings
from trellis.telemetry import get_logger

_log = get_logger(__name__)


@dataclass(eq=False)
class Claim:
    """The claim of an installation, identified by its namespace, in one process."""

    kube: Kube
    namespace: str
    installation: str
    timings: HandoverTimings | None = None
    election: LeaderTimings | None = None
    waits: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._timings = self.timings or self.kube.timings.handover
        self._leader = Leader(
            self.kube,
            lease=names.LEASE_NODES,
            namespace=self.namespace,
            identity=self.installation,
            follows=self._follow,
            timings=self.election or self.kube.timings.claim,
            shown=False,
        )
        self._waiting = asyncio.Event()

    def check(self) -> None:
        """Raise NotLeading unless this installation holds the claim."""
        self._leader.check()

    @property
    def settles_in(self) -> float:
        """Return the seconds until nodes with a runtime can be changed, 0 if the claim is old enough.

        Measured by the local clock if the other holder was observed, and after a restart by the time in the Lease.
        """
        if (seen := self._timings.settle - self._leader.seconds_since_other) > 0:
            return seen
        record = self._leader.record
        if not record.transitions or not record.acquired:
            return 0.0
        age = self.kube.now() - datetime.fromisoformat(record.acquired).timestamp()
        return min(max(0.0, self._timings.settle - age), self._timings.settle)

    @property
    def leading(self) -> bool:
        """True if this installation certainly holds the claim."""
        return self._leader.leading

    async def run(self, work: Lead, stop: asyncio.Event) -> None:
        """Run ``work`` while the claim is held, until ``stop`` is set.

        Raises:
            StillRunning: a part of the work continues.
        """
        left: list[StillRunning] = []

        async def guarded(stopping: asyncio.Event) -> None:
            try:
                await work(stopping)
            except StillRunning as error:
                left.append(error)
                raise

        recording = asyncio.create_task(self._record_waiting(), name="waiting installation")
        try:
            await self._leader.run(guarded, stop)
        finally:
            recording.cancel()
            self.kube.health.forget(readiness_of(names.LEASE_NODES))
        if left:
            raise left[0]

    async def _record_waiting(self) -> None:
        """Record on the Lease that this installation waits, for the users of the holder."""
        while True:
            await self._waiting.wait()
            try:
                await self._record()
            except Conflict:
                await asyncio.sleep(self._timings.again)  # the holder renewed it concurrently
                continue
            except (KubeError, NotLeading) as error:
                _log.warning("waiting installation could not be recorded", error=str(error))
            await asyncio.sleep(self._timings.record)
            self._waiting.clear()

    async def _record(self) -> None:
        now = datetime.fromtimestamp(self.kube.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = await self.kube.get(LEASES, names.LEASE_NODES, self.namespace)
        annotations = (found["metadata"].get("annotations") or {}) | {names.WAITING_PREFIX + self.installation: now}
        await self.kube.replace(LEASES, found | {"metadata": found["metadata"] | {"annotations": annotations}})

    def _follow(self) -> None:
        self.waits()
        holder = self._leader.holder
        if holder in {"", self.installation}:
            return
        self._waiting.set()
        reason = (
            f"installation {holder} provisions the nodes of this cluster, so installation {self.installation} does "
            f"not change them: uninstall one of them; {self.installation} takes over when both services of {holder}, "
            "node_watcher and provisioner, are stopped"
        )
        self.kube.health.not_ready(readiness_of(names.LEASE_NODES), reason)
