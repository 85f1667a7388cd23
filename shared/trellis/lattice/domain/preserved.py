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
"""Fields of a Service allocated by the API server, which a re-created Service gets back."""


@dataclass(frozen=True, slots=True)
class PreservedAllocation:
    """The reflected application of a Service, its UID, and the addresses and ports of its spec."""

    application: str
    lattice: str
    uid: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)


def write_preserved(application: str, lattice: str, service: ServiceView) -> str:
    """Return the annotation for a Service reflected from an application of a lattice."""
    spec: Mapping[str, Any] = service.manifest().get("spec") or {}
    had = {name: spec[name] for name in ALLOCATED if spec.get(name)}
    ports = [
        {"name": port.get("name"), "nodePort": port["nodePort"]}
        for port in spec.get("ports") or ()
        if port.get("nodePort")
    ]
    recorded = {"application": application, "lattice": lattice, "uid": service.uid, "spec": had | {"ports": ports}}
    return orjson.dumps(recorded, option=orjson.OPT_SORT_KEYS).decode()


def read_preserved(text: str) -> PreservedAllocation | None:
    """Parse an annotation; return None if it is invalid, because a user may have edited it."""
    try:
        found = orjson.loads(text or "null")
        spec = {name: found["spec"][name] for name in (*ALLOCATED, "ports") if found["spec"].get(name)}
        if not all(isinstance(port, dict) for port in spec.get("ports", [])):
            return None
        return PreservedAllocation(str(found["application"]), str(found["lattice"]), str(found.get("uid") or ""), spec)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def belongs_to(piece: SliceView, uid: str) -> bool:
    """Return whether a slice belongs to the Service with this UID: owned by it, or with its addresses."""
    preserved = read_preserved(piece.preserved)
    return uid == (piece.owner or (preserved.uid if preserved is not None else ""))


def preserves_for(piece: SliceView, service: ServiceView) -> bool:
    """Return whether a slice preserves addresses for the application and lattice of a Service.

    The UIDs differ if a user deleted the Service before this slice was observed.
    """
    preserved = read_preserved(piece.preserved) if not piece.owner else None
    return preserved is not None and (preserved.application, preserved.lattice) == (
        service.application,
        service.lattice,
    )
