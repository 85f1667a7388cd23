"""Handlers of the events of ``provisioner``.

In: events of ``provisioner``. Out: acknowledgements, sent after a run of the node that saw the change of the event; a
run if the watch is behind NATS. Called by the bus. Invariant: an event is a hint; the Job and the Node are read before
a decision. Source: ADR 102.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.consume.subscriber import Received
from trellis.events.provision import ProvisionEventData, ProvisionFailed, ProvisionSucceeded
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.views import JobState, JobView

CONSUMED = (ProvisionSucceeded, ProvisionFailed)


def on_provision(jobs: JobIndex, queue: KeyedQueue[str]) -> Callable[[Received[ProvisionEventData]], None]:
    """Return the handler of provisioning events; ``jobs``: as the watch reports them."""

    def handle(received: Received[ProvisionEventData]) -> None:
        event = received.data
        if is_shown(event, jobs.of_uid(event.node_uid)):
            queue.cover(event.node, received.ack)
        else:
            queue.add(event.node, received.ack, received.trace)

    return handle


def is_shown(event: ProvisionEventData, jobs: Iterable[JobView]) -> bool:
    """Return whether the watch already reports the outcome of an event for its Job."""
    for job in jobs:
        if f"{job.namespace}/{job.name}" == event.job:
            return bool(job.failure) if isinstance(event, ProvisionFailed) else job.state is JobState.COMPLETE
    return False
