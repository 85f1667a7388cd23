"""Reads the Services of applications: how many there are, which lead nowhere, who looks after them.

In: a connection. Out: views and counts. Called by ``trellis status`` and ``trellis explain``; writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from service_reflector.views import ServiceView, SliceView, view_service, view_slice
from service_reflector.watch import SLICE_SELECTOR
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import ENDPOINT_SLICES, SERVICES, Manifest, Resource
from trellis_bundle.gather import read_leadership

REFLECTOR: Final = "service-reflector"
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Mirrors:
    """``services``: how many; ``without_endpoints``: those that lead to no ready host; ``leader``: "" for nobody."""

    services: int = 0
    without_endpoints: list[str] = field(default_factory=list)
    leader: str = ""


async def read_mirrors(kube: Kube, namespace: str) -> Mirrors:
    """Return what there is of applications' Services in all namespaces; the lease is in ``namespace``.

    Raises:
        KubeError: something could not be read.
    """
    services, slices, leader = await asyncio.gather(
        read_views(kube, SERVICES, view_service),
        read_views(kube, ENDPOINT_SLICES, view_slice, SLICE_SELECTOR),
        read_leader(kube, namespace),
    )
    return counted(services, slices, leader)


def counted(services: Iterable[ServiceView], slices: Iterable[SliceView], leader: str) -> Mirrors:
    """Return the counts; a Service that has a ready endpoint in one of its slices leads somewhere."""
    mirrors = sorted(one.key for one in services if one.application)
    led = {
        piece.service_key
        for piece in slices
        if any((one.get("conditions") or {}).get("ready") for one in piece.endpoints)
    }
    return Mirrors(len(mirrors), [key for key in mirrors if key not in led], leader)


async def read_views(
    kube: Kube,
    res: Resource,
    view: Callable[[Manifest], V],
    selector: str | None = None,
    namespace: str | None = None,
) -> list[V]:
    """Return views of every object of a namespace, or of all; none where the kind is not defined.

    Raises:
        KubeError: they could not be read.
    """
    try:
        found = await kube.list(res, namespace, label_selector=selector)
    except NotFound:
        return []
    return [view(one) for one in found.items]


async def read_leader(kube: Kube, namespace: str, service: str = REFLECTOR) -> str:
    """Return who leads a service, "" if nobody does; raises KubeError if that could not be read."""
    try:
        lead = await read_leadership(kube, service, namespace, datetime.now(UTC))
    except NotFound:
        return ""
    return lead.holder if lead.age is not None and lead.age <= lead.duration else ""
