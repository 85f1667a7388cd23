"""Health of an object: one of Argo CD's states, the reason and a message.

Pure values. Computed by one function per kind: ``node_health``, ``shim_health``, ``group_health``, ``host_health``,
``application_health``, ``service_health`` and ``controller_health``, and for wasmCloud v2 ``host_health``,
``workload_health``, ``deployment_health``, ``artifact_health`` and ``routed_service_health`` of ``trellis.v2.explain``.
Tables, ``trellis explain`` and entities use them, so that all show the same state.
Source of the states: Argo CD, "Resource Health".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """State of an object, the same set for every kind."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    SUSPENDED = "Suspended"
    DEGRADED = "Degraded"
    MISSING = "Missing"
    UNKNOWN = "Unknown"
    NOT_OPTED_IN = "Not opted in"
    """Of nodes only: the node does not take part."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Health of one object. ``reason`` is CamelCase, as in conditions; ``message`` is "" if there is nothing to add."""

    health: Health
    reason: str
    message: str = ""


UNDECIDED = Verdict(Health.UNKNOWN, "")
"""Before the function of a kind computes it."""
