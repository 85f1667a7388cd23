"""Side effects of a plan: the ledger, and what is said of a rollout that is halted or goes on.

In: plans. Out: the ledger in Kubernetes, Events on it, facts. Called by ``app``.
Invariants: the ledger is written by compare-and-swap before a Job of it exists; what was said of a halt stands in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from provisioner.domain.plan import Plan
from provisioner.known import Known
from trellis import names
from trellis.bus.bus import Bus, BusUnavailable, FactRefused
from trellis.events.rollout import RolloutHalted, RolloutResumed
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import CONFIGMAPS
from trellis.provisioning.ledger import make_ledger
from trellis.telemetry import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutEffects:
    """Where plans go."""

    kube: Kube
    bus: Bus
    recorder: EventRecorder
    known: Known

    async def write_ledger(self, plan: Plan) -> None:
        """Write the plan's ledger over the one it was made from.

        Raises:
            Conflict: another wrote it meanwhile; KubeError: no certain answer. Either way it is read anew.
        """
        version = self.known.ledger_version
        manifest = make_ledger(self.known.settings.namespace, plan.ledger, version)
        self.known.writing = plan.ledger
        try:
            if version is None:
                written = await self.kube.create(CONFIGMAPS, manifest)
            else:
                written = await self.kube.replace(CONFIGMAPS, manifest)
        except KubeError:
            self.known.doubt()
            raise
        finally:
            self.known.writing = None
        self.known.accept(written)

    async def show_rollout(self, plan: Plan, halted_before: tuple[str, ...]) -> None:
        """Show of which shims the rollout was halted or resumed: in the log, and as Events on the ledger."""
        settings = self.known.settings
        for shim in sorted({*plan.ledger.halted} ^ {*halted_before}):
            halted, failing = shim in plan.ledger.halted, plan.failing.get(shim, 0)
            reason = "RolloutHalted" if halted else "RolloutResumed"
            message = (
                f"{shim}: {failing} nodes fail (limit {self._limit(shim)}): no further node is begun until fewer do; "
                "the failing ones are tried again. See their Events: kubectl get events --field-selector "
                "reason=ProvisionFailed -A"
                if halted
                else f"{shim}: {failing} nodes fail, fewer than the limit: further nodes are begun again"
            )
            _log.warning("rollout changed", reason=reason, shim=shim, failing=failing)
            await self.recorder.record(
                regarding=ObjectRef("v1", "ConfigMap", names.LEDGER, self.known.ledger_uid, settings.namespace),
                type="Warning" if halted else "Normal",
                reason=reason,
                message=message,
            )

    async def tell_rollout(self, plan: Plan) -> bool:
        """Say on the bus which rollouts are halted, or are no more, unless the ledger has the mark that it was said.

        Returns:
            Whether it is still to be said: the bus is away, and planning does not wait for it.
        """
        ledger = plan.ledger
        told = frozenset() if self.known.forgotten else frozenset(ledger.told)
        for shim in sorted(told ^ {*ledger.halted}):
            failing, digest = plan.failing.get(shim, 0), self.known.version(shim)
            fact: RolloutHalted | RolloutResumed = (
                RolloutHalted(digest=digest, shim=shim, failing=failing, limit=self._limit(shim))
                if shim in ledger.halted
                else RolloutResumed(digest=digest, shim=shim, failing=failing)
            )
            try:
                await self.bus.publish(fact, dedup=f"{names.LEDGER}.{self.known.ledger_version}.{shim}.{fact.fact}")
            except BusUnavailable:
                return True  # the bus itself warns of its outage, once
            except FactRefused as error:
                # Saying it again is of no use; the ledger and its Event say it too.
                _log.error("the rollout's change was not said on the bus", fact=fact.fact, error=str(error))
        self.known.forgotten = False
        if ledger.halted != ledger.told:
            await self.write_ledger(replace(plan, ledger=replace(ledger, told=ledger.halted)))
        return False

    def _limit(self, shim: str) -> int:
        limits = self.known.settings.limits(self.known.shims.values()).get(shim)
        return max(1, limits.halt_after) if limits else 1
