"""Tells refused writes of service_reflector from others. Called by ``app``; ``trellis.kube.refusals`` has the rest."""

from __future__ import annotations

from trellis.kube import refusals
from trellis.kube.errors import AlreadyExists, NotFound
from trellis.kube.resources import ENDPOINT_SLICES, HTTP_ROUTES


def is_refused(error: Exception) -> bool:
    """Return whether a write was refused.

    Of a Service that came or went in the meantime (409, 404) the next run knows; of an HTTPRoute these mean that its
    kind is not served or that its name is taken, as 409 does of an EndpointSlice.
    """
    if isinstance(error, AlreadyExists):
        return error.kind in {HTTP_ROUTES.kind, ENDPOINT_SLICES.kind}
    if isinstance(error, NotFound):
        return error.kind == HTTP_ROUTES.kind
    return refusals.is_refused(error)
