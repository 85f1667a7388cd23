"""The allocated addresses and ports of a Service, preserved on one of its EndpointSlices.

Pure. In: a Service. Out: the text of an annotation, and back. Called by ``service_reflector`` and ``trellis
uninstall``. Invariant: the slice with the annotation has no owner, so it outlives the Service, and the next leader can
read it. Source: ADR 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from trellis.lattice.domain.service_views import ServiceView, SliceView

ALLOCATED: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
"""What the API server gave a Service, and one that is made in its place is to have again."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Whose mirror the Service is, its uid, and the addresses and ports of its spec."""

    application: str
    lattice: str
    uid: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)


def write_kept(application: str, lattice: str, service: ServiceView) -> str:
    """Return the text for a Service that mirrors an application of a lattice."""
    spec: Mapping[str, Any] = (service.manifest or {}).get("spec") or {}
    had = {name: spec[name] for name in ALLOCATED if spec.get(name)}
    ports = [
        {"name": port.get("name"), "nodePort": port["nodePort"]}
        for port in spec.get("ports") or ()
        if port.get("nodePort")
    ]
    told = {"application": application, "lattice": lattice, "uid": service.uid, "spec": had | {"ports": ports}}
    return orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode()


def read_kept(text: str) -> Kept | None:
    """Return what a text says, None if it says nothing of the kind: somebody may have edited it."""
    try:
        found = orjson.loads(text or "null")
        spec = {name: found["spec"][name] for name in (*ALLOCATED, "ports") if found["spec"].get(name)}
        if not all(isinstance(port, dict) for port in spec.get("ports", [])):
            return None
        return Kept(str(found["application"]), str(found["lattice"]), str(found.get("uid") or ""), spec)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def belongs_to(piece: SliceView, uid: str) -> bool:
    """Return whether a slice is of the Service with this uid: owned by it, or with its addresses."""
    kept = read_kept(piece.kept)
    return uid == (piece.owner or (kept.uid if kept is not None else ""))


def keeps_for(piece: SliceView, service: ServiceView) -> bool:
    """Return whether a slice has addresses of the application of a Service, of the same lattice.

    A Service that was deleted manually while this slice was not seen has another uid than the slice says.
    """
    kept = read_kept(piece.kept) if not piece.owner else None
    return kept is not None and (kept.application, kept.lattice) == (service.application, service.lattice)
