"""One run of a Shim's key: gather, decide, apply.

In: names of Shims. Out: finalizer, RuntimeClass and status by ``shim_apply``. Called by the queue of ``app``.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.cache import Cache
from provisioner.domain import shim_decide
from provisioner.shim_apply import ShimEffects
from provisioner.shim_gather import ShimGather
from trellis.telemetry import Telemetry, TraceContext, caused


@dataclass(frozen=True, slots=True)
class FollowShims:
    """One run of a Shim's key: gather, decide, apply."""

    gather: ShimGather
    cache: Cache
    effects: ShimEffects
    telemetry: Telemetry

    async def run(self, name: str, trace: TraceContext | None) -> float | None:
        """Bring one Shim's finalizer, RuntimeClass and status up to date; raises KubeError to be tried again."""
        await self.cache.deletions.look(self.cache.shims.values())
        snapshot = await self.gather.snapshot(name)
        self.cache.versions_read(name, snapshot)
        actions = shim_decide.decide(snapshot) if snapshot else []
        if actions:
            attributes = {"trellis.shim": name, "trellis.actions": [type(action).__name__ for action in actions]}
            with caused(self.telemetry, f"reconcile shim {name}", trace, attributes):
                await self.effects.apply(actions)
        return self.cache.timings.deleting if snapshot and snapshot.shim.deleting else None
