"""The run of the planner's one key: which nodes get a slot.

In: the nodes, Jobs and Shims that are known, and the ledger. Out: the ledger, then the keys of nodes. Called by the
queue of ``app``. Invariant: the ledger is written before a Job is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provisioner.domain.plan import plan
from provisioner.gather import world_of
from provisioner.known import Known
from provisioner.rollout_apply import RolloutEffects
from trellis.bus.consume.queue import KeyedQueue
from trellis.kube.refusals import unready
from trellis.provisioning.shim_status import Reason
from trellis.telemetry import Telemetry, TraceContext, current_trace, get_logger, linked

PLAN_REST: Final = 3.0
"""Times what the last plan took, with writing the ledger: however many nodes there are, and in work, plans take no more
than a quarter of the event loop. Who comes after such a rest waits for nothing but the burst."""
LEDGER_REFUSED: Final = Reason.LEDGER_REFUSED.value
HANDOVER: Final = "InstallationChanged"
"""Parts of readiness."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Planner:
    """The run of the planner's one key: who gets a slot, written to the ledger before any Job is made."""

    known: Known
    effects: RolloutEffects
    telemetry: Telemetry
    nodes: KeyedQueue[str]

    async def run(self, _: str, trace: TraceContext | None) -> float | None:
        """Plan once; raises KubeError when the ledger could not be written, for the queue to try again."""
        del trace
        started = time.monotonic()
        self._rest(started)  # as long as last time: changes come meanwhile, too
        try:
            return await self._plan()
        finally:
            self.known.plan_seconds = time.monotonic() - started
            self._rest(time.monotonic())

    def _rest(self, since: float) -> None:
        self.known.rested_at = since + min(self.known.timings.plan_rest, PLAN_REST * self.known.plan_seconds)

    async def _plan(self) -> float | None:
        just_read = self.known.ledger is None
        world = await world_of(self.known)
        if self.known.undecidable():
            return None  # the informer of Shims calls for a plan as soon as they can be listed
        outcome = plan(world)
        self.telemetry.metrics.rollouts_halted.labels(self.telemetry.service).set(len(outcome.ledger.halted))
        for node in (*outcome.claimed, *outcome.waiting):
            self.known.waiting_since.setdefault(node.uid, world.now)
        if outcome.ledger != world.ledger:
            attributes = {
                "trellis.claimed": len(outcome.claimed),
                "trellis.released": len(outcome.released),
                "trellis.in_work": len(outcome.ledger.entries),
                "trellis.failing": sum(outcome.failing.values()),
            }
            entries = outcome.ledger.entries
            self.known.certain |= {entries[node.uid].tried(node.uid) for node in outcome.claimed}
            begun = [self.known.traces[node.uid] for node in outcome.claimed if node.uid in self.known.traces]
            with linked(self.telemetry, "plan rollout", begun, attributes):
                await self.effects.write_ledger(outcome)
                if (plan_trace := current_trace()) is not None:
                    self.known.plans |= {node.uid: plan_trace for node in outcome.claimed}
                if outcome.ledger.halted != world.ledger.halted:
                    await self.effects.show_rollout(outcome, world.ledger.halted)
        # A slot that a former leader gave, and whose Job it did not live to make, is known to nobody else.
        begin = (
            [node for node in world.nodes if node.uid in outcome.ledger.entries]
            if just_read
            else (*outcome.claimed, *outcome.feared)
        )
        for node in begin:
            self.nodes.add(node.name)
        if await self.effects.tell_rollout(outcome):
            publish = self.known.timings.publish
            return min(publish, outcome.wake_in or publish)
        return outcome.wake_in

    async def shown(self) -> None:
        """Wait until the term ends, and leave no figure of it behind: another replica plans then."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            with contextlib.suppress(KeyError):
                self.telemetry.metrics.rollouts_halted.remove(self.telemetry.service)


async def show_handover(known: Known, plan_soon: Callable[[], None]) -> None:
    """Report that another installation provisioned the nodes until a moment ago; plan once that is over."""
    health, seconds = known.kube.health, known.handover_until - time.monotonic()
    try:
        if seconds > 0:
            text = f"nodes with a runtime are not begun for {seconds:.0f} s after another installation gave them up"
            health.note(HANDOVER, text)
            _log.warning("took over from another installation", settle_seconds=round(seconds))
            await asyncio.sleep(seconds)
            health.note(HANDOVER, "")
            plan_soon()
        await asyncio.get_running_loop().create_future()
    finally:
        health.note(HANDOVER, "")


def report_ledger(known: Known, status_soon: Callable[[], None], why: str) -> None:
    """Report in readiness and on all Shims that the ledger is refused; "" takes it back."""
    known.ledger_refused = why
    unready(known.kube.health, LEDGER_REFUSED)(why)
    status_soon()
