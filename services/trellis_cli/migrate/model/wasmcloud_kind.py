"""Plans the migration of the kind Application from the aggregated API of wasmcloud-operator to a CRD.

Pure: raw objects in, steps out. Called by ``migrate.wasmcloud``. Invariants: the CRD is created before the API in front
of it is deleted, so that the kind is always served; a CRD of another owner is kept.
"""

from __future__ import annotations

from trellis.crds.kinds import APPLICATIONS, make_definition
from trellis.kube.crd_ownership import Place, standing_of
from trellis.kube.resources import DEFINITIONS
from trellis_cli.migrate.model.plan import Doing, Step
from trellis_cli.migrate.model.wasmcloud import Former, is_registered
from trellis_cli.migrate.model.writes import CreateObject

_PLACE = f"{DEFINITIONS.kind} {APPLICATIONS.name}"
_WHAT = "defines applications"


def plan_kind(former: Former) -> list[Step]:
    """Return the steps for the CRD; empty if the operator does not serve the kind, or Trellis already manages the
    CRD.
    """
    if not is_registered(former.registration):
        return []
    standing = standing_of(APPLICATIONS, former.applications, None)
    match standing.place:
        case Place.MISSING:
            reason = (
                "served once the operator's API is deleted; application_manager then lists the applications of wadm, "
                "which are not changed"
            )
            write = CreateObject(DEFINITIONS, None, make_definition(APPLICATIONS))
            return [Step(_PLACE, _WHAT, Doing.DEFINE, reason, write)]
        case Place.CURRENT:
            return []
        case _:
            return [Step(_PLACE, _WHAT, Doing.LEAVE, standing.message)]
