"""Classifies refused writes of service_reflector. Called by ``app``; ``trellis.kube.refusals`` has the common rule."""

from __future__ import annotations

from trellis.kube import refusals
from trellis.kube.errors import AlreadyExists, NotFound
from trellis.kube.resources import ENDPOINT_SLICES, HTTP_ROUTES


def is_refused(error: Exception) -> bool:
    """Return whether a write was refused.

    For a Service, 409 and 404 mean that it was created or deleted in the meantime: the next run has its state. For an
    HTTPRoute they mean that its name is taken or its kind is not served; for an EndpointSlice, 409 means the former.
    """
    if isinstance(error, AlreadyExists):
        return error.kind in {HTTP_ROUTES.kind, ENDPOINT_SLICES.kind}
    if isinstance(error, NotFound):
        return error.kind == HTTP_ROUTES.kind
    return refusals.is_refused(error)
