"""The run of the only key of the planner: assigns slots to nodes.

In: the known nodes, Jobs and Shims, and the ledger. Out: the ledger, then the keys of nodes. Called by the queue of
``app``. Invariant: the ledger is written before a Job is created.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provisioner.cache import Cache
from provisioner.domain.plan import plan
from provisioner.pods import Pods
from provisioner.rollout_apply import RolloutEffects
from provisioner.rollout_gather import fleet_snapshot, ledger_manifest, workload_classes
from provisioner.rollout_pods import RolloutPods
from trellis.bus.consume.queue import KeyedQueue
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.refusals import unready
from trellis.provisioning.shim_status import Reason
from trellis.telemetry import Telemetry, TraceContext, current_trace, get_logger, linked
from trellis.telemetry.health import Health

LEDGER_REFUSED: Final = Reason.LEDGER_REFUSED.value
HANDOVER: Final = "InstallationChanged"
"""Keys of readiness notes."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FleetReconciler:
    """Reconciler of the planner's only key: assigns slots in the ledger, before any Job is created."""

    kube: Kube
    cache: Cache
    effects: RolloutEffects
    telemetry: Telemetry
    nodes: KeyedQueue[str]
    pods: RolloutPods
    status_soon: Callable[[], None]

    async def run(self, _: str, trace: TraceContext | None) -> float | None:
        """Plan once; raises KubeError if the ledger could not be written, upon which the queue retries."""
        del trace
        started = time.monotonic()
        self.cache.plan_began(started)
        try:
            return await self._plan()
        finally:
            self.cache.plan_ended(started, time.monotonic())

    async def _read_ledger(self) -> bool:
        """Read the ledger unless it is cached; return whether it was read. Raises KubeError."""
        if self.cache.ledger is not None:
            return False
        self.cache.ledger_accepted(await ledger_manifest(self.kube, self.cache.settings.namespace))
        return True

    async def _list_pods(self) -> None:
        """Find the installer pods of former terms, once; until then they are read for each Job."""
        if not self.cache.pods_listed:
            namespace = self.cache.settings.installer_namespace
            with contextlib.suppress(KubeError):  # the read for a Job reports it
                self.cache.installer_pods_listed(await Pods(self.kube).nodes_at_work(namespace))

    async def _plan(self) -> float | None:
        await self._list_pods()
        just_read = await self._read_ledger()
        workloads = await self.pods.read(workload_classes(self.cache))
        just_read = await self._read_ledger() or just_read  # it can have been invalidated meanwhile
        snapshot = fleet_snapshot(self.cache, self.kube.now(), workloads)
        if snapshot.shims_unknown:
            return None  # the informer of Shims requests a plan as soon as they can be listed
        outcome = plan(snapshot)
        self.telemetry.metrics.rollouts_halted.labels(self.telemetry.service).set(len(outcome.ledger.halted))
        waits_for_others = self.cache.planned(outcome, snapshot.now)
        if outcome.ledger != snapshot.ledger:
            attributes = {
                "trellis.claimed": len(outcome.claimed),
                "trellis.released": len(outcome.released),
                "trellis.in_progress": len(outcome.ledger.entries),
                "trellis.failing": sum(outcome.failing.values()),
            }
            traces = [self.cache.noted(node.uid).trace for node in outcome.claimed]
            with linked(self.telemetry, "plan rollout", [trace for trace in traces if trace], attributes):
                written = await self.effects.write_ledger(outcome)
                if (plan_trace := current_trace()) is not None:
                    self.cache.claimed(outcome, plan_trace)
                if outcome.ledger.halted != snapshot.ledger.halted:
                    await self.effects.show_rollout(outcome, snapshot.ledger.halted, written)
        # A halt can have the words of the wait before it.
        if waits_for_others or outcome.ledger.halted != snapshot.ledger.halted:
            self.status_soon()
        # A former leader may have assigned a slot without creating its Job: only the ledger has that slot.
        begin = (
            [node for node in snapshot.nodes if node.uid in outcome.ledger.entries]
            if just_read
            else (*outcome.claimed, *outcome.unconfirmed)
        )
        for node in begin:
            self.nodes.add(node.name)
        if await self.effects.publish_rollout(outcome):
            publish = self.cache.timings.publish
            return min(publish, outcome.wake_in or publish)
        return outcome.wake_in

    async def shown(self) -> None:
        """Wait until the term ends, then remove its metrics and reports: another replica plans then."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cache.term_ended()
            with contextlib.suppress(KeyError):
                self.telemetry.metrics.rollouts_halted.remove(self.telemetry.service)


async def show_handover(health: Health, until: float, plan_soon: Callable[[], None]) -> None:
    """Report the handover of the nodes from another installation; plan once that is over."""
    seconds = until - time.monotonic()
    try:
        if seconds > 0:
            text = f"nodes with a runtime are not started for {seconds:.0f} s after another installation released them"
            health.note(HANDOVER, text)
            _log.warning("took over the nodes from another installation", settle_seconds=round(seconds))
            await asyncio.sleep(seconds)
            health.note(HANDOVER, "")
            plan_soon()
        await asyncio.get_running_loop().create_future()
    finally:
        health.note(HANDOVER, "")


def report_ledger(health: Health, cache: Cache, status_soon: Callable[[], None], reason: str) -> None:
    """Report in readiness and on all Shims that the ledger is refused; "" ends the report."""
    cache.ledger_refused(reason)
    unready(health, LEDGER_REFUSED)(reason)
    status_soon()
