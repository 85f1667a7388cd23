"""Lists a kind, and distinguishes a kind that is not served from one without objects.

In: a connection, a kind. Out: its objects, or None if it is not defined. Called by commands, by code that reads pages
and rows, and by the watches of a viewer; writes nothing. Invariant: after a 404 response for a kind, only a 404
response for its CRD, or for the API group of SpinKube, proves that it has no objects; a kind of Kubernetes itself
always has a list. The models of the CRDs are imported after such a response only: commands start often.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trellis.kube.client import Kube
from trellis.kube.discovery import served_versions
from trellis.kube.errors import KubeError, NotFound, Unavailable
from trellis.kube.permissions import missing_right
from trellis.kube.resources import API_SERVICES, DEFINITIONS, SPIN_APPS, Manifest, Resource
from trellis.read_model.errors import AnswerError

if TYPE_CHECKING:
    from trellis.crds.kinds import Kind
    from trellis.kube.crd_ownership import Place, Standing

# ruff: noqa: PLC0415 - slow imports, see above


class NotServedError(AnswerError):
    """A kind can have objects and could not be listed. ``place``: state of its CRD, None if unreadable.

    ``denied``: this account may not read the CRD, so it is unknown whether the kind is defined.
    """

    def __init__(self, text: str, place: Place | None, *, denied: bool = False) -> None:
        super().__init__(text)
        self.place, self.denied = place, denied


async def list_served(
    kube: Kube, res: Resource, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
) -> list[Manifest] | None:
    """Return the objects of a kind, or None if it is not defined.

    Raises:
        NotServedError: the kind is defined and not served, or its CRD cannot be read.
        KubeError: the list failed for another reason, or a proxy answers for a served kind.
    """
    try:
        return (await kube.list(res, namespace, label_selector=labels, field_selector=fields)).items
    except (NotFound, Unavailable) as error:
        await require_undefined(kube, res, error)
        return None


async def require_undefined(kube: Kube, res: Resource, error: NotFound | Unavailable) -> None:
    """Return if the kind is not defined; ``error`` is the error of its list.

    Raises:
        NotServedError: the kind is defined and not served, or its CRD cannot be read.
        KubeError: ``error``, if the kind is served or part of Kubernetes, or if no CRD can be read either.
    """
    from trellis.kube.crd_ownership import Place

    kind = kind_of(res)
    if kind is None:
        if res.group == SPIN_APPS.group and isinstance(error, NotFound) and not await served_versions(kube, res.group):
            return  # a cluster without SpinKube
        raise error
    try:
        _, standing, _ = await look_at(kube, kind)
    except KubeError as lacks:
        if not isinstance(error, NotFound):
            raise error from None
        text, denied = f"{error}; the state of CRD {kind.name} is unknown: {lacks}", missing_right(lacks) is not None
        raise NotServedError(text, None, denied=denied) from None
    if standing.place is Place.MISSING and isinstance(error, NotFound):
        return
    if not standing.message or standing.place is Place.MISSING:
        raise error
    wait = f"; wait until `kubectl get {kind.name}` works" if standing.place is Place.CURRENT else ""
    raise NotServedError(f"{error}; {kind.name}: {standing.message}{wait}", standing.place)


def kind_of(res: Resource) -> Kind | None:
    """Return the kind of Trellis that a resource is, None if it is none."""
    from trellis.crds.kinds import BY_DIRECTORY

    every = (kind for kinds in BY_DIRECTORY.values() for kind in kinds)
    return next((kind for kind in every if kind.name == res.definition), None)


async def look_at(kube: Kube, kind: Kind) -> tuple[Kind, Standing, Manifest | None]:
    """Return the state of a kind, and its CRD; raises KubeError if they cannot be read."""
    from trellis.kube.crd_ownership import standing_of

    definition, registration = await asyncio.gather(
        _find(kube, DEFINITIONS, kind.name), _find(kube, API_SERVICES, f"{kind.version}.{kind.group}")
    )
    return kind, standing_of(kind, definition, registration), definition


async def _find(kube: Kube, res: Resource, name: str) -> Manifest | None:
    try:
        return await kube.get(res, name)
    except NotFound:
        return None
