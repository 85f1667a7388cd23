"""Reads Applications, and whose definition of a kind stands in the way where they cannot be read.

In: a connection. Out: manifests, a standing. Called by whatever shows applications, and by ``trellis crds``. Writes
nothing.
"""

from __future__ import annotations

import asyncio

from trellis.crds.kinds import APPLICATIONS as KIND
from trellis.crds.kinds import Kind
from trellis.definitions import Place, Standing, standing_of
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound, Unavailable
from trellis.kube.resources import API_SERVICES, APPLICATIONS, DEFINITIONS, Manifest, Resource
from trellis.read_model.errors import AnswerError


async def read_apps(kube: Kube, namespace: str | None = None) -> list[Manifest]:
    """Return all Applications, by namespace and name.

    Raises:
        AnswerError: the kind is not defined here, or somebody else's.
        KubeError: they could not be read.
    """
    try:
        found = await kube.list(APPLICATIONS, namespace)
    except (NotFound, Unavailable):
        _, standing, _ = await look_at(kube, KIND)
        if standing.place is Place.CURRENT and not standing.message:
            raise
        raise AnswerError(standing.message) from None
    return sorted(found.items, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"]))


async def look_at(kube: Kube, kind: Kind) -> tuple[Kind, Standing, Manifest | None]:
    """Return where a kind stands, and its definition; raises KubeError if that cannot be read."""
    definition, registration = await asyncio.gather(
        _find(kube, DEFINITIONS, kind.name), _find(kube, API_SERVICES, f"{kind.version}.{kind.group}")
    )
    return kind, standing_of(kind, definition, registration), definition


async def _find(kube: Kube, res: Resource, name: str) -> Manifest | None:
    try:
        return await kube.get(res, name)
    except NotFound:
        return None
