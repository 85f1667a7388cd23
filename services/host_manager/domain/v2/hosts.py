"""Events about Hosts. Pure; called by ``decide``.

Invariant: ``wasm_host.silent`` is published for a Host that a user can still see as Ready only if the
operator records the heartbeats of other hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from host_manager.domain.v2.published import Published
from host_manager.domain.v2.trust import Evidence
from trellis.events.wasmcloud_v2 import WasmHostGone, WasmHostReady, WasmHostSilent
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import host_trouble
from trellis.v2.hosts import HostView
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part

_BY_HEARTBEAT: Final = frozenset({Reason.HEARTBEAT_MISSING, Reason.HOST_NOT_READY})
HostEvent = WasmHostReady | WasmHostSilent | WasmHostGone


def host_events(cluster: Cluster, published: Published, evidence: Evidence) -> Iterator[HostEvent]:
    """Yield the events to publish about Hosts; none while the Hosts are not known."""
    if not cluster.snapshot.knows(Part.HOSTS):
        return
    there = {host.meta.key: host for host in cluster.hosts if host.meta.uid and not host.meta.deleting}
    for key, former in published.hosts.items():
        host = there.get(key)
        if host is None or host.meta.uid != former.uid:
            yield WasmHostGone(namespace=former.namespace, name=former.name, uid=former.uid, host_id=former.host_id)
    for key, host in there.items():
        former_event = published.hosts.get(key)
        if former_event is not None and former_event.uid != host.meta.uid:
            former_event = None
        if (event := _state(cluster, host, evidence)) is None or event == former_event:
            continue
        if isinstance(event, WasmHostSilent) and isinstance(former_event, WasmHostSilent):
            continue  # the reason and the age in the message change while the heartbeat is missing
        yield event


def _state(cluster: Cluster, host: HostView, evidence: Evidence) -> WasmHostReady | WasmHostSilent | None:
    """Return the event of the current state of a host, None if it is in between or not known."""
    trouble = host_trouble(cluster, host)
    meta = host.meta
    if trouble is not None:
        if trouble.reason not in _BY_HEARTBEAT or not evidence.confirms(trouble.reason, host):
            return None
        return WasmHostSilent(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            host_id=host.id,
            reason=trouble.reason,
            message=trouble.shown,
        )
    age = cluster.age(cluster.last_heartbeat(host))
    if not host.ready.true or age is None or age > cluster.snapshot.timings.silence:
        return None
    return WasmHostReady(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        host_id=host.id,
        address=host.address,
        port=host.port,
        environment=host.environment,
        labels=dict(host.labels),
    )
