"""The records of the circuit breakers of an installation."""

from __future__ import annotations

from support.nodes.fleet import Fleet
from trellis.kube.resources import CONFIGMAPS
from trellis.limits.breaker_record import read_breakers
from trellis.names import circuit_breaker_name


def paused_by(fleet: Fleet, service: str, kind: str) -> int | None:
    """Return how many objects the record of a circuit breaker has as paused, None if it is not open."""
    path = CONFIGMAPS.path(fleet.system, circuit_breaker_name(service))
    state = read_breakers(fleet.api.call("GET", path)[1]).get(kind)
    return len(state.opening.paused) if state is not None and state.opening is not None else None
