"""The row of Applications in ``trellis status``.

In: a connection, or rows. Out: a part. Called by ``status``; writes nothing. Invariant: a cluster without the kind has
nothing wrong with it; one where somebody else has it is told by ``trellis crds check``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from trellis.crds.kinds import APPLICATIONS as KIND
from trellis.definitions import Place
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound, Unavailable
from trellis.kube.resources import APPLICATIONS
from trellis_bundle.apps_model import AppRow, condition, row_of
from trellis_bundle.crds import look_at
from trellis_bundle.explain_application import MANAGER
from trellis_bundle.mirrors import read_leader
from trellis_bundle.part import Led, Part, Unwell, led_part

NAME: Final = "applications"
UNKNOWN: Final = {"count": None, "phases": None, "not_well": None, "holder": None}
_UNDEFINED: Final = "the kind is not defined"
_NEVER: Final = "NotLookedAt"


async def read_applications(kube: Kube, namespace: str) -> Part:
    """Return the row; the lease is in ``namespace``.

    Raises:
        KubeError: something could not be read.
    """
    try:
        found = await kube.list(APPLICATIONS)
    except (NotFound, Unavailable):
        _, standing, _ = await look_at(kube, KIND)
        if standing.place is Place.MISSING:
            return Part(NAME, _UNDEFINED, facts={"count": 0, "phases": {}, "not_well": [], "holder": None})
        if standing.place is Place.CURRENT and not standing.message:
            raise  # the API server is away, not the kind
        return Part(NAME, "not served", standing.message, dict(UNKNOWN))
    holder = await read_leader(kube, namespace, MANAGER)
    stalled = {
        key
        for item in found.items
        if condition(item.get("status") or {}, "Stalled").get("status") == "True"
        for key in [row_of(item).key]
    }
    return applications_part([row_of(item) for item in found.items], stalled, holder)


def applications_part(rows: Sequence[AppRow], stalled: set[str], leader: str) -> Part:
    """Return the row; what does not go on by itself is a problem, as is that nobody keeps both sides equal."""
    phases = dict(sorted(Counter(row.phase or _NEVER for row in rows).items()))
    bad = sorted(row.key for row in rows if row.key in stalled or row.phase in {"Failed", "Unhealthy"})
    text = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    led = Led(MANAGER, leader, "both sides drift apart")
    facts = {"count": len(rows), "phases": phases, "not_well": bad}
    return led_part(NAME, text, led, Unwell("not well", bad, "trellis explain application/NAME"), facts)
