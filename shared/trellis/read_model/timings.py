"""Timings of the read model; tests use shorter ones. Pure. Called by ``trace_read``.

The timings of a viewer's watches are in ``live_model.Pace``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelTimings:
    """Timings in seconds."""

    jaeger: float = 30.0
    """Timeout of a request to Jaeger."""
