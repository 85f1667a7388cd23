"""What a Service that was deleted by hand had been given, kept until another stands in its place.

Pure. In: a Service. Out: text of an annotation on one of its EndpointSlices, and back. Called by ``decide``, ``gather``
and ``watches``. Invariant: it is written down before the Service is let go, so whoever leads next can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from service_reflector.domain.resources import ALLOCATED
from trellis.lattice.domain.service_views import ServiceView


@dataclass(frozen=True, slots=True)
class Kept:
    """Whose mirror the Service was, and the addresses and ports of its spec."""

    application: str
    lattice: str
    spec: Mapping[str, Any] = field(default_factory=dict)


def write_kept(service: ServiceView) -> str:
    """Return the text for a Service."""
    spec: Mapping[str, Any] = (service.manifest or {}).get("spec") or {}
    had = {name: spec[name] for name in ALLOCATED if spec.get(name)}
    ports = [
        {"name": port.get("name"), "nodePort": port["nodePort"]}
        for port in spec.get("ports") or ()
        if port.get("nodePort")
    ]
    told = {"application": service.application, "lattice": service.lattice, "spec": had | {"ports": ports}}
    return orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode()


def read_kept(text: str) -> Kept | None:
    """Return what a text says, None if it says nothing of the kind: somebody may have edited it."""
    try:
        found = orjson.loads(text or "null")
        spec = {name: found["spec"][name] for name in (*ALLOCATED, "ports") if found["spec"].get(name)}
        if not all(isinstance(port, dict) for port in spec.get("ports", [])):
            return None
        return Kept(str(found["application"]), str(found["lattice"]), spec)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
