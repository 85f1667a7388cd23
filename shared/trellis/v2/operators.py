"""Several runtime-operators in one cluster: the part of each, and the one that owns a namespace.

Pure. In: a snapshot. Out: snapshots of one operator each. Called by ``cluster``. Invariants: an operator is judged by
its own Hosts, Workloads and pods only; the owner of a namespace without a placed Workload is not known, never guessed.
Source: ADR 118. Hosts are in the namespace of their runtime-operator, and each operator has a NATS of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from trellis.v2.host_messages import HostMessages
from trellis.v2.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators by the namespace of their Hosts, called place.

    ``places``: sorted; ``hosts``: places by the ID of a host, several if their operators are on one NATS;
    ``namespaces``: places of the hosts that Workloads of a namespace are on.
    """

    places: tuple[str, ...]
    hosts: Mapping[str, frozenset[str]]
    namespaces: Mapping[str, frozenset[str]]

    def owner(self, namespace: str) -> str:
        """Return the place of the operator that owns a namespace, "" if it is not known."""
        return _only(self.namespaces.get(namespace))

    def place_of(self, host_id: str) -> str:
        """Return the place of the operator that has a host, "" if none or several have it."""
        return _only(self.hosts.get(host_id))


def _only(found: frozenset[str] | None) -> str:
    return next(iter(found)) if found is not None and len(found) == 1 else ""


def view_operators(snapshot: Snapshot) -> Operators:
    """Return the operators of a cluster, as far as its Hosts show them."""
    hosts: dict[str, frozenset[str]] = {}
    for host in snapshot.hosts:
        if host.id:
            hosts[host.id] = hosts.get(host.id, frozenset()) | {host.meta.namespace}
    places = tuple(sorted({host.meta.namespace for host in snapshot.hosts}))
    found: dict[str, set[str]] = defaultdict(set)
    for workload in snapshot.workloads if len(places) > 1 else ():
        if there := hosts.get(workload.host_id):
            found[workload.meta.namespace] |= there
    return Operators(places, hosts, {namespace: frozenset(there) for namespace, there in found.items()})


def part_of(snapshot: Snapshot, operators: Operators, place: str) -> Snapshot:
    """Return the snapshot of one operator: without Hosts, pods and placed Workloads of the other ones."""
    others = {host_id for host_id, where in operators.hosts.items() if place not in where}
    elsewhere = {*operators.places} - {place}
    return replace(
        snapshot,
        hosts=[host for host in snapshot.hosts if host.meta.namespace == place],
        workloads=[item for item in snapshot.workloads if item.host_id not in others],
        pods=[pod for pod in snapshot.pods if pod.meta.namespace not in elsewhere],
        messages=_own_messages(snapshot.messages, operators, place, others),
    )


def _own_messages(
    messages: HostMessages | None, operators: Operators, place: str, others: Collection[str]
) -> HostMessages | None:
    """Return the heartbeats that one operator can receive; those on the NATS of another operator prove nothing."""
    if messages is None or messages.error:
        return messages
    foreign = sorted({where for host_id in messages.hosts if host_id in others for where in operators.hosts[host_id]})
    own = {host_id: last for host_id, last in messages.hosts.items() if host_id not in others}
    if foreign and not any(host_id in operators.hosts for host_id in own):
        reason = f"it is the NATS of the runtime-operator of namespace {', '.join(foreign)}, and not of {place}"
        return replace(messages, seconds=0.0, hosts={}, error=reason)
    return replace(messages, hosts=own)
