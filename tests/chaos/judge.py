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
    """A run. ``deleted``: names of objects that users deleted: objects that are created for one and named after it go,
    too.

    ``until``: the number of writes for which that holds; then everything is deleted. None: all.
    """

    system: str
    installers: str
    deleted: Collection[str]
    until: int | None = None


def violations(records: Sequence[Record], case: Case) -> list[str]:
    """Return every forbidden write."""
    found = [late_write for service in LED for late_write in late_writes(records, Lease(case.system, service))]
    return [*found, *_repeated(records, case), *_destroyed(records[: case.until], case)]


def by_service(record: Record) -> bool:
    """Return whether a write is a service's."""
    return str(record.get("userAgent", "")).startswith("trellis-")


def _by_user(record: Record) -> bool:
    """Return whether a write is neither a service's nor the cluster's own, and of more than a status."""
    agent = str(record.get("userAgent", ""))
    return not (by_service(record) or agent.startswith(_CLUSTERS) or record["objectRef"].get("subresource"))


def work(records: Iterable[Record]) -> Counter[str]:
    """Count the accepted writes of services by kind; leases are not work, and reviews are questions."""
    own = (record for record in records if by_service(record) and accepted(record))
    kinds = (place(record)[0] for record in own)
    return Counter(kind for kind in kinds if kind != "leases" and not kind.endswith("reviews"))


def _repeated(records: Iterable[Record], case: Case) -> list[str]:
    """Return Jobs that were created again without a deletion in between.

    A Job of a node that had another one since is no repetition: users changed the target, and changed it back. Nor is
    one of a node that a user wrote to since: opting out and in again needs the same Job a second time, and no other one
    comes between where nothing has to be removed from the node.
    """
    last: dict[str, str] = {}
    again: Counter[str] = Counter()
    for record in records:
        kind, namespace, name = place(record)
        if kind == "nodes" and accepted(record) and _by_user(record):
            last.pop(name, None)
        if (kind, namespace) != ("jobs", case.installers) or not accepted(record):
            continue
        node = name.rsplit("-", _AFTER_NODE)[0]
        if record["verb"] == "create":
            again[name] += last.get(node) == name
            last[node] = name
        elif record["verb"] == "delete" and not by_service(record) and last.get(node) == name:
            del last[node]
    return [f"Job {name} was made {count + 1} times" for name, count in again.items() if count]


def _destroyed(records: Iterable[Record], case: Case) -> list[str]:
    """Return deletions by services without a request of a user."""
    found = []
    for record in records:
        kind, namespace, name = place(record)
        if record["verb"] not in {"delete", "deletecollection"} or not by_service(record) or not accepted(record):
            continue
        if kind not in _PASSING and not any(name == item or name.startswith(f"{item}-") for item in case.deleted):
            found.append(f"{kind} {namespace}/{name} was deleted by {record['userAgent']}, and nobody had asked for it")
    return found
