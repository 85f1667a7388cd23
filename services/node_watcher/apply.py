"""Side effects of node_watcher: patches of Nodes, Kubernetes Events, events.

In: actions of ``decide``. Out: writes to Kubernetes and NATS. Called by ``app``. Invariants: a Node is patched only if
it did not change since the read; nothing is deleted without permission of the circuit breaker; an unreachable NATS
never blocks a Kubernetes write, the event is published when NATS is back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from node_watcher.domain.actions import Action, GuardedDeletion, PatchNode, Publish, Reason, RecordEvent
from node_watcher.gather import Cache
from trellis import names
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.kube.breaker import Breaker
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import NODES, Manifest
from trellis.provisioning.views import JobView, NodeView
from trellis.telemetry import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Effects:
    """The targets of actions; ``wrote`` receives a patched Node and the view that the patch was made from."""

    kube: Kube
    bus: Bus
    recorder: EventRecorder
    cache: Cache
    breaker: Breaker
    wrote: Callable[[Manifest, NodeView], None]

    async def apply(self, name: str, actions: Sequence[Action]) -> float | None:
        """Apply the actions on one node, in order.

        Returns the seconds until the retry of an event that could not be published or of a paused deletion; None if
        all is done.

        Raises:
            KubeError: a write was refused or not answered; the actions after it were not applied.
            EventRefused: the bus refuses an event; all other actions were applied.
        """
        again: list[float] = []
        refused = None
        for action in actions:
            try:
                if (wait := await self._apply_action(name, action)) is not None:
                    again.append(wait)
            except BusUnavailable:
                again.append(self.cache.timings.publish)  # the bus itself logs its outage, once
            except EventRefused as error:
                refused = error
        if refused is not None:
            raise refused
        return min(again, default=None)

    async def report_refusal(self, node: NodeView, job: JobView | None, error: KubeError) -> None:
        """Record an Event on a Node, with its Job, that the API server refuses the write."""
        await self.recorder.record(
            regarding=ObjectRef("v1", "Node", node.name, node.uid),
            type="Warning",
            reason=Reason.UPDATE_REFUSED.value,
            message=f"the API server refuses the labels and annotations of node {node.name}: {error.message}",
            related=ObjectRef("batch/v1", "Job", job.name, job.uid, job.namespace) if job is not None else None,
        )

    async def _apply_action(self, name: str, action: Action) -> float | None:
        """Apply one action and return the seconds for which its deletion is paused, None if it is done."""
        match action:
            case GuardedDeletion():
                if (wait := await self.breaker.admit(action.target)) is not None:
                    return wait
                for step in action.steps:
                    await self._apply_action(name, step)
            case Publish():
                await self.bus.publish(action.event, dedup=action.dedup)
                self.cache.remember(name, action.then)
            case PatchNode():
                patched = await self.kube.json_patch(
                    NODES, name, action.ops, field_manager=names.FIELD_MANAGER_NODE_WATCHER
                )
                self.wrote(patched, action.node)
                _log.info("node patched", node=name, reason=action.reason.value, message=action.message)
            case RecordEvent():
                await self.recorder.record(
                    regarding=ObjectRef("v1", "Node", name, action.uid),
                    type="Warning" if action.warning else "Normal",
                    reason=action.reason.value,
                    message=action.message,
                )
                if action.then is not None:
                    self.cache.remember(name, action.then)
            case _:
                assert_never(action)
        return None
