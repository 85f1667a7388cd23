"""The row of ``trellis status`` for wasmCloud v2.

Pure. In: a snapshot. Out: a row. Called by ``status``. Invariant: an object has the same cause as on its page.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final

from trellis.read_model.explain.page import Line, Rank
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.artifact import artifact_cause
from trellis.v2.explain.deployment import deployment_cause
from trellis.v2.explain.host import host_cause
from trellis.v2.explain.host_group import host_group_cause
from trellis.v2.explain.operator import operator_lines
from trellis.v2.explain.text import number_of
from trellis.v2.snapshot import Part as Read
from trellis.v2.snapshot import Snapshot
from trellis_cli.status.row import Part, Unhealthy, named

PART: Final = "wasmcloud-v2"
UNKNOWN: Final = dict.fromkeys(("deployments", "host_groups", "hosts", "artifacts", "unhealthy", "causes"))


def v2_part(snapshot: Snapshot) -> Part:
    """Return the row: objects and host groups with a cause, and an unavailable operator, are problems.

    Kinds that this account cannot read are ``unread``.
    """
    cluster = Cluster(snapshot)
    operator = [line for part in cluster.parts for line in operator_lines(part) if line.trouble]
    common = {line.reason for line in operator}
    groups = cluster.host_groups
    lines = {
        "workloaddeployment": [(item.meta.key, deployment_cause(cluster, item)) for item in snapshot.deployments],
        "whostgroup": [(key, host_group_cause(cluster, item)) for key, item in groups.items()],
        "whost": [(item.meta.key, host_cause(cluster, item)) for item in snapshot.hosts],
        "artifact": [(item.meta.key, artifact_cause(cluster, item)) for item in snapshot.artifacts],
    }
    found = {kind: _unwell(items, common) for kind, items in lines.items()}
    problems = [named(Unhealthy(f"{kind} not healthy", kind, causes)) for kind, causes in found.items() if causes]
    counts = {
        "deployments": _count(snapshot, Read.DEPLOYMENTS, len(snapshot.deployments)),
        "host_groups": _count(snapshot, Read.PODS, len(groups)) if snapshot.knows(Read.HOSTS) else None,
        "hosts": _count(snapshot, Read.HOSTS, len(snapshot.hosts)),
        "artifacts": _count(snapshot, Read.ARTIFACTS, len(snapshot.artifacts)),
    }
    causes = {f"{kind}/{key}": text for kind, each in found.items() for key, text in each.items()}
    data: dict[str, Any] = {**counts, "unhealthy": sorted(causes), "causes": dict(sorted(causes.items()))}
    nouns = {"deployments": "WorkloadDeployment", "host_groups": "host group", "hosts": "host", "artifacts": "Artifact"}
    text = ", ".join(_shown(counts[name], noun) for name, noun in nouns.items())
    unread = "; ".join(dict.fromkeys(snapshot.unread.values()))
    return Part(PART, text, "; ".join([*(line.shown for line in operator), *problems]), data, unread)


def _unwell(items: Iterable[tuple[str, Line | None]], common: Container[str]) -> dict[str, str]:
    """Return the causes by ``namespace/name``; progress, warnings and consequences of the operator are none.

    ``common``: reasons of an outage, which is one problem and not one of each object.
    """
    return {
        key: cause.text
        for key, cause in items
        if cause is not None
        and cause.rank is Rank.CAUSE
        and cause.state is not Health.PROGRESSING
        and cause.reason not in common
    }


def _count(snapshot: Snapshot, part: Read, count: int) -> int | None:
    return count if snapshot.knows(part) else None


def _shown(count: int | None, noun: str) -> str:
    return f"{noun}s unknown" if count is None else number_of(count, noun)
