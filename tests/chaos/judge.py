"""Find forbidden actions of a run in the API server's history, whatever its end is.

Pure. In: audit records of a run in their order, its schedule. Out: violations as sentences. Called by ``check``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from support.cluster.exclusion import Lease, accepted, late_writes, place

Record = dict[str, Any]
LED: Final = (
    "trellis-node-watcher",
    "trellis-provisioner",
    "trellis-host-manager",
    "trellis-service-reflector",
    "trellis-application-manager",
)
"""Services that one replica at a time does the work of."""
_AFTER_NODE: Final = 3
"""Parts of a Job's name behind the node's: what is wanted there, and ``provision-kwasm``."""
_CLUSTERS: Final = ("kube-", "kwok")
"""What the programs of a control plane are called, which write to nodes by themselves."""
_PASSING: Final = {"jobs", "pods", "leases", "events"}
"""What services delete of their own accord: their tools."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run. ``deleted``: names of what people asked to go: what is made of it, and named after it, goes, too.

    ``until``: of how many of the writes that holds; then everything is let go of. None: of all.
    """

    system: str
    installers: str
    deleted: Collection[str]
    until: int | None = None


def violations(records: Sequence[Record], case: Case) -> list[str]:
    """Return every write that must not have been."""
    found = [late_write for service in LED for late_write in late_writes(records, Lease(case.system, service))]
    return [*found, *_repeated(records, case), *_destroyed(records[: case.until], case)]


def ours(record: Record) -> bool:
    """Say whether a write is a service's."""
    return str(record.get("userAgent", "")).startswith("trellis-")


def _by_people(record: Record) -> bool:
    """Say whether a write is neither a service's nor the cluster's own, and of more than a status."""
    agent = str(record.get("userAgent", ""))
    return not (ours(record) or agent.startswith(_CLUSTERS) or record["objectRef"].get("subresource"))


def work(records: Iterable[Record]) -> Counter[str]:
    """Count the accepted writes of services by kind; leases are not work, and reviews are questions."""
    own = (record for record in records if ours(record) and accepted(record))
    kinds = (place(record)[0] for record in own)
    return Counter(kind for kind in kinds if kind != "leases" and not kind.endswith("reviews"))


def _repeated(records: Iterable[Record], case: Case) -> list[str]:
    """Return Jobs that were made again though nobody had deleted them.

    A Job of a node that had another one since is none: people changed what they wanted, and changed it back. Nor is one
    of a node that somebody wrote to since: who opts out and in again wants the same Job a second time, and no other one
    comes between where nothing has to be taken off the node.
    """
    last: dict[str, str] = {}
    again: Counter[str] = Counter()
    for record in records:
        kind, namespace, name = place(record)
        if kind == "nodes" and accepted(record) and _by_people(record):
            last.pop(name, None)
        if (kind, namespace) != ("jobs", case.installers) or not accepted(record):
            continue
        node = name.rsplit("-", _AFTER_NODE)[0]
        if record["verb"] == "create":
            again[name] += last.get(node) == name
            last[node] = name
        elif record["verb"] == "delete" and not ours(record) and last.get(node) == name:
            del last[node]
    return [f"Job {name} was made {count + 1} times" for name, count in again.items() if count]


def _destroyed(records: Iterable[Record], case: Case) -> list[str]:
    """Return deletions by services of what nobody asked them to delete."""
    found = []
    for record in records:
        kind, namespace, name = place(record)
        if record["verb"] not in {"delete", "deletecollection"} or not ours(record) or not accepted(record):
            continue
        if kind not in _PASSING and not any(name == item or name.startswith(f"{item}-") for item in case.deleted):
            found.append(f"{kind} {namespace}/{name} was deleted by {record['userAgent']}, and nobody had asked for it")
    return found
