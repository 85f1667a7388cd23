"""What wakes node_watcher from the bus: how provisioning went.

In: facts of ``provisioner``. Out: keys (node names) in the queue, with the acknowledgement to give when a run that
started later is done. Called by the bus. Invariant: a fact is a hint; the Job and the Node are read before acting.
"""

from __future__ import annotations

from collections.abc import Callable

from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.consume.subscriber import Received
from trellis.events.provision import ProvisionFact, ProvisionFailed, ProvisionSucceeded

CONSUMED = (ProvisionSucceeded, ProvisionFailed)


def on_provision(queue: KeyedQueue[str]) -> Callable[[Received[ProvisionFact]], None]:
    """Return the handler of provisioning facts."""

    def handle(received: Received[ProvisionFact]) -> None:
        queue.add(received.fact.node, received.ack, received.trace)

    return handle
