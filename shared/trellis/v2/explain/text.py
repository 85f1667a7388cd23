"""Texts that several causes of wasmCloud v2 use. Pure: views in, texts out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from trellis.v2.cluster import Cluster
from trellis.v2.fields import listed
from trellis.v2.hosts import HostView
from trellis.v2.snapshot import Part

SHOWN: Final = 5
SUSPENDED: Final = "spec.replicas is 0"
"""State of a WorkloadDeployment without Workloads, and of its Service."""


def in_seconds(age: float) -> str:
    """Return an age or a delay: ``39 s``, ``12 min``, ``3 h``."""
    minutes = age / 60
    if minutes < 3:
        return f"{age:.0f} s"
    return f"{minutes:.0f} min" if minutes < 180 else f"{minutes / 60:.0f} h"


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 Workload``, ``2 Workloads``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def quoted(message: str) -> str:
    """Return a message of another program behind a text, in parentheses, "" without one.

    Such a message is a chain of colons. It is unchanged, so that it is found in logs.
    """
    return f" ({message})" if message else ""


def host_named(cluster: Cluster, host_id: str) -> str:
    """Return the name of a host, its ID if no Host has it."""
    host = cluster.host(host_id)
    return host.meta.name if host is not None else host_id


def labels_shown(labels: Mapping[str, str]) -> str:
    """Return labels as in a selector: ``a=1,b=2``."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def labels_there(hosts: Iterable[HostView], names: Iterable[str]) -> str:
    """Return the values of labels of Hosts with their number: ``hostgroup=default ×2``; all labels if none has them."""
    hosts, wanted = [*hosts], set(names)
    found = Counter(
        f"{name}={value}" for host in hosts for name, value in sorted(host.labels.items()) if name in wanted
    ) or Counter(f"{name}={value}" for host in hosts for name, value in sorted(host.labels.items()))
    return counted(found) or "no labels"


def environments_there(hosts: Iterable[HostView]) -> str:
    """Return the environments of Hosts with their number."""
    return counted(Counter(host.environment or "none" for host in hosts)) or "none"


def hosts_there(cluster: Cluster) -> str:
    """Return the Hosts with their IDs."""
    more = len(cluster.hosts) - SHOWN
    names = ", ".join(f"{host.meta.name} ({host.id})" for host in cluster.hosts[:SHOWN])
    return f"{names} and {more} more" if more > 0 else names or "none"


def counted(found: Counter[str]) -> str:
    """Return values with their number, the most frequent first."""
    return listed([f"{value} ×{count}" for value, count in found.most_common()], SHOWN)


def unknown(cluster: Cluster, part: Part) -> str:
    """Return why a part is unknown, "" if it is known."""
    return cluster.snapshot.unread.get(part) or cluster.snapshot.limited.get(part, "")
