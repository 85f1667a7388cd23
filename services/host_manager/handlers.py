"""Handlers of the events of ``secrets_backend``: Secrets that changed after components received them.

In: events of ``secrets_backend``. Out: keys (Secrets) in their own queue, whose reconcile enqueues host groups. Called
by the bus and by that queue. Invariants: only the reconcile of a host group rolls its pods; changes within ten seconds
cause one roll. After a lost event hosts keep the former value until their next roll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from host_manager.domain.secret_changes import change_of
from host_manager.domain.views import GroupView
from host_manager.timings import Timings
from host_manager.waiting_changes import Changes
from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.consume.subscriber import Received
from trellis.events.secrets import SecretChanged
from trellis.telemetry import TraceContext, joined

CONSUMED = (SecretChanged,)


def on_secret(changes: Changes, queue: KeyedQueue[str]) -> Callable[[Received[SecretChanged]], None]:
    """Return the handler of events about changed Secrets."""

    def handle(received: Received[SecretChanged]) -> None:
        change = change_of(received.data)
        changes.collect(change)
        queue.add(change.secret, received.ack, received.trace)

    return handle


@dataclass(slots=True)
class SecretReconciler:
    """Reconciles a Secret: collects further changes, then enqueues the host groups that roll for them."""

    changes: Changes
    groups: Mapping[str, GroupView]
    wake: Callable[[str, TraceContext | None], None]
    timings: Timings = Timings()
    _until: float | None = field(default=None, init=False)
    _traces: dict[str, TraceContext | None] = field(default_factory=dict, init=False)

    async def run(self, key: str, trace: TraceContext | None) -> None:
        """Return after the reconcile of each affected host group; raises TimeoutError, on which the queue retries."""
        if key in self.changes.gathered:
            self._traces[key] = joined(self._traces.get(key), trace)
            now = asyncio.get_running_loop().time()
            self._until = now + self.timings.gathering if self._until is None else self._until
            await asyncio.sleep(self._until - now)
            self._enqueue_groups()
        async with asyncio.timeout(self.timings.patience):
            await self.changes.seen(key)

    def _enqueue_groups(self) -> None:
        """Enqueue the host groups for all collected changes; the first run that has waited does this for all runs."""
        self._until = None
        gathered, self.changes.gathered = self.changes.gathered, {}
        traces, self._traces = self._traces, {}
        for change in gathered.values():
            groups = [
                key
                for key, group in self.groups.items()
                if group.restarts_on_secrets
                and not group.deleting
                and (not change.namespaces or key.partition("/")[0] in change.namespaces)
            ]
            self.changes.add_pending(change, groups)
            for group in groups:
                self.wake(group, traces.get(change.secret))
