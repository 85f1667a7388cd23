"""Side effects of a plan: the ledger, and the events of a halted or resumed rollout.

In: plans. Out: the ledger in Kubernetes, Kubernetes Events on it, events. Called by ``app``. Invariants: the ledger is
written by compare-and-swap before a Job of it exists; the ledger records the published halts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from provisioner.cache import Cache
from provisioner.domain.plan import Plan
from trellis import names
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.rollout import RolloutHalted, RolloutResumed
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import CONFIGMAPS
from trellis.provisioning.ledger import Ledger, make_ledger
from trellis.provisioning.shim_status import Reason
from trellis.provisioning.workload_state import WorkloadHalt
from trellis.telemetry import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutEffects:
    """The targets of plans."""

    kube: Kube
    bus: Bus
    recorder: EventRecorder
    cache: Cache

    async def write_ledger(self, plan: Plan) -> Ledger:
        """Replace the ledger by that of the plan; return it as the API server accepted it.

        Raises:
            Conflict: another client wrote it meanwhile; KubeError: no certain answer. It is re-read in both cases.
        """
        version = self._version()
        manifest = make_ledger(self.cache.settings.namespace, plan.ledger, version)
        with self.cache.ledger_written(plan.ledger):
            try:
                if version is None:
                    written = await self.kube.create(CONFIGMAPS, manifest)
                else:
                    written = await self.kube.replace(CONFIGMAPS, manifest)
            except KubeError:
                self.cache.invalidate_ledger()
                raise
        return self.cache.ledger_accepted(written)

    async def show_rollout(self, plan: Plan, halted_before: tuple[str, ...], ledger: Ledger) -> None:
        """Report the shims whose rollout was halted or resumed: in the log, and as Events on the ledger."""
        namespace = self.cache.settings.namespace
        for shim in sorted({*plan.ledger.halted} ^ {*halted_before}):
            halted, failing = shim in plan.ledger.halted, plan.failing.get(shim, 0)
            reason = "RolloutHalted" if halted else "RolloutResumed"
            message = (
                self._halt_text(shim, failing, _halt(ledger, shim))
                if halted
                else f"{shim}: no reason for the halt remains ({failing} nodes fail): the rollout continues"
            )
            _log.warning("rollout changed", reason=reason, shim=shim, failing=failing)
            await self.recorder.record(
                regarding=ObjectRef("v1", "ConfigMap", names.LEDGER, ledger.uid, namespace),
                type="Warning" if halted else "Normal",
                reason=reason,
                message=message,
            )

    async def publish_rollout(self, plan: Plan) -> bool:
        """Publish which rollouts were halted or resumed, unless the ledger records that as published.

        Returns:
            True if the publication is pending: NATS is unreachable, and planning does not wait for it.
        """
        ledger = plan.ledger
        published = frozenset() if self.cache.halts_lost else frozenset(ledger.halts_published)
        for shim in sorted(published ^ {*ledger.halted}):
            failing, digest = plan.failing.get(shim, 0), self._digest(shim)
            halt = _halt(ledger, shim)
            event: RolloutHalted | RolloutResumed = (
                RolloutHalted(
                    digest=digest,
                    shim=shim,
                    failing=failing,
                    limit=self._limit(shim),
                    reason=halt.reason if halt is not None else Reason.FAILING.value,
                    pod=halt.pod or None if halt is not None else None,
                )
                if shim in ledger.halted
                else RolloutResumed(digest=digest, shim=shim, failing=failing)
            )
            try:
                await self.bus.publish(event, dedup=f"{names.LEDGER}.{self._version()}.{shim}.{event.event_name}")
            except BusUnavailable:
                return True  # the bus itself logs its outage, once
            except EventRefused as error:
                # A retry would be refused, too; the ledger and its Event have the same information.
                _log.error("rollout event not published", event_name=event.event_name, error=str(error))
        self.cache.halts_published()
        if ledger.halted != ledger.halts_published:
            await self.write_ledger(replace(plan, ledger=replace(ledger, halts_published=ledger.halted)))
        return False

    def _halt_text(self, shim: str, failing: int, halt: WorkloadHalt | None) -> str:
        if halt is not None:
            return (
                f"{shim}: {halt.message}: no further node is started until the pod is ready; to roll back: trellis "
                f"rollout undo {shim}; to continue: trellis rollout resume {shim}"
            )
        return (
            f"{shim}: {failing} nodes fail (limit {self._limit(shim)}): no further node is started until fewer "
            "fail; failing nodes are retried. See their Events: kubectl get events --field-selector "
            "reason=ProvisionFailed -A"
        )

    def _version(self) -> str | None:
        return self.cache.ledger.version if self.cache.ledger is not None else None

    def _digest(self, shim: str) -> str:
        """Return the version of a shim for users: the digest of the legacy image, or the generation of a Shim."""
        view = self.cache.shims.get(shim)
        return (self.cache.installer.digest or "") if view is None else f"{view.name}-{view.generation}"

    def _limit(self, shim: str) -> int:
        limits = self.cache.settings.limits(self.cache.shims.values()).get(shim)
        return max(1, limits.halt_after) if limits else 1


def _halt(ledger: Ledger, shim: str) -> WorkloadHalt | None:
    state = ledger.workloads.get(shim)
    return state.halt if state is not None else None
