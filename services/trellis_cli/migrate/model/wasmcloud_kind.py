"""What becomes of the kind Application where wasmcloud-operator served it from an API of its own.

Pure: raw objects in, steps out. Called by ``migrate_wasmcloud``. Invariants: the definition is made before the API in
front of it goes, so that the kind is always served; a definition of another owner stays.
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
    """Return what becomes of the definition; nothing if the operator does not serve the kind, or it is managed by
    Trellis already.
    """
    if not is_registered(former.registration):
        return []
    standing = standing_of(APPLICATIONS, former.applications, None)
    match standing.place:
        case Place.MISSING:
            why = (
                "served as soon as the operator's API is gone; application_manager then shows in it what wadm has, "
                "which nothing of this touches"
            )
            write = CreateObject(DEFINITIONS, None, make_definition(APPLICATIONS))
            return [Step(_PLACE, _WHAT, Doing.DEFINE, why, write)]
        case Place.CURRENT:
            return []
        case _:
            return [Step(_PLACE, _WHAT, Doing.LEAVE, standing.message)]
