"""Watch handlers of node_watcher: changes of Nodes, of installer Jobs, and of the slots of rollouts.

In: changes from the informers. Out: keys (node names) in the queue. Called by the informers, in the event loop.
Invariant: a handler decides nothing; it caches a change and enqueues the key of its node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from node_watcher.gather import Cache
from trellis.kube.informer import Change
from trellis.provisioning.ledger import Entry
from trellis.provisioning.views import JobView, NodeView, opting_in

Enqueue = Callable[[str], None]


def on_node(cache: Cache, enqueue: Enqueue) -> Callable[[Change[NodeView]], None]:
    """Return the handler of Node changes; the trace of a node starts at the time of the first one."""

    def handle(change: Change[NodeView]) -> None:
        cache.observed_ns.setdefault(change.key, time.time_ns())
        cache.shim_references.take_node(change.key, change.new)
        if change.new is not None and (cause := opting_in(change.old, change.new)) is not None:
            cache.causes[change.key] = cause
            cache.traces.pop(change.key, None)
        enqueue(change.key)

    return handle


def on_job(cache: Cache, enqueue: Enqueue) -> Callable[[Change[JobView]], None]:
    """Return the handler of Job changes."""

    def handle(change: Change[JobView]) -> None:
        cache.jobs.change(change.old, change.new)
        cache.shim_references.take_job(change.old, change.new)
        job = change.new or change.old
        if job is not None and job.node:
            enqueue(job.node)

    return handle


def on_slots(cache: Cache, enqueue: Enqueue) -> Callable[[Change[Mapping[str, Entry]]], None]:
    """Return the handler of changes of the ledger of rollouts: each enqueues the nodes whose slot changed.

    Only slots of Shims with ``drain`` matter. A change of a Shim enqueues all nodes anyway.
    """

    def handle(change: Change[Mapping[str, Entry]]) -> None:
        drained = {shim.name for shim in cache.shims.values() if shim.drain}
        old, new = (_slots_of(drained, slots or {}) for slots in (change.old, change.new))
        changed = {uid for uid in old.keys() | new.keys() if old.get(uid) != new.get(uid)}
        for node in cache.nodes.values() if changed else ():
            if node.uid in changed:
                enqueue(node.name)

    return handle


def _slots_of(shims: Collection[str], slots: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the slots that change one of these Shims, by the UID of the Node."""
    return {uid: slot for uid, slot in slots.items() if any(name in shims for name in slot.shims)}
