"""Lists a kind for ``trellis status`` so that a kind that is not served is unknown, and not empty.

In: a connection, a kind. Out: its objects, or the row to show instead. Called by ``status`` and the modules that make
its rows; writes nothing. Invariant: only a CRD that is not there proves that there are no objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trellis.crds.kinds import APPLICATIONS, KINDS
from trellis.definitions import Place
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound, Unavailable
from trellis.kube.resources import Manifest, Resource
from trellis.read_model.apps_read import look_at
from trellis_bundle.part import Part


async def list_served(kube: Kube, res: Resource, row: str, unknown: Mapping[str, Any]) -> list[Manifest] | Part | None:
    """Return the objects of a kind, None if it is not defined, and the row where it is defined and not served.

    Args:
        kube: where.
        res: the kind.
        row: name of the row.
        unknown: fields of the row where nothing is known.

    Raises:
        KubeError: they could not be listed although the CRD is there and served.
    """
    try:
        return (await kube.list(res)).items
    except (NotFound, Unavailable):
        kind = next(one for one in (*KINDS, APPLICATIONS) if one.name == f"{res.plural}.{res.group}")
        _, standing, _ = await look_at(kube, kind)
        if standing.place is Place.MISSING:
            return None
        if standing.place is Place.CURRENT and not standing.message:
            raise  # the API server, or a proxy, does not answer for a kind that it has
        return Part(row, "not served", standing.message, dict(unknown))
