"""The row of Applications in ``trellis status``.

In: a connection, or rows. Out: a part. Called by ``status``; writes nothing. Invariant: a missing CRD is not a
problem; ``trellis crds check`` reports a CRD of another owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from trellis.kube.client import Kube
from trellis.kube.resources import APPLICATIONS, Manifest
from trellis.read_model.explain.application import MANAGER, application_cause
from trellis.read_model.explain.page import Rank
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.tables.apps import TROUBLE, AppRow, row_of
from trellis_cli.status.row import Led, Part, Unhealthy, led_part, with_leader
from trellis_cli.status.served import list_or_row

NAME: Final = "applications"
UNKNOWN: Final = {"count": None, "phases": None, "unhealthy": None, "holder": None}
_UNDEFINED: Final = "kind not defined"
_NEVER: Final = "NotEvaluated"


async def read_applications(kube: Kube, namespace: str, groups: Sequence[Manifest] | None) -> Part:
    """Return the row; the lease is in ``namespace``, ``groups``: all host groups, None if unknown.

    Raises:
        KubeError: an object could not be read.
    """
    found = await list_or_row(kube, APPLICATIONS, NAME, UNKNOWN)
    if found is None:
        return Part(NAME, _UNDEFINED, data={"count": 0, "phases": {}, "unhealthy": [], "holder": None})
    if isinstance(found, Part):
        return found
    reading = Reading(kube, namespace)
    leader = await reading.leader(MANAGER, "")
    part = applications_part([row_of(item) for item in found], causes_of(found, groups), leader.holder)
    return with_leader(part, leader)


def causes_of(items: Sequence[Manifest], groups: Sequence[Manifest] | None) -> dict[str, str]:
    """Return the causes of blocked Applications by key; Applications that only need time are omitted."""
    causes = {}
    for item in items:
        cause = application_cause(item, groups)
        if cause is not None and cause.rank is Rank.CAUSE:
            causes[row_of(item).key] = cause.text
    return causes


def applications_part(rows: Sequence[AppRow], causes: Mapping[str, str], leader: str | None) -> Part:
    """Return the row; a blocked application is a problem, and so is a missing leader.

    ``causes``: by key, of blocked applications.
    """
    phases = dict(sorted(Counter(row.phase or _NEVER for row in rows).items()))
    bad = {row.key: row.problem for row in rows if row.phase in TROUBLE} | dict(causes)
    text = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    led = Led(MANAGER, leader, "Kubernetes and wadm are not synchronized")
    data = {"count": len(rows), "phases": phases, "unhealthy": sorted(bad)}
    return led_part(NAME, text, led, Unhealthy("unhealthy", "application", bad), data)
