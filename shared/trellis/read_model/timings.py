"""How long the read model waits; tests pass shorter times. Pure. Called by ``trace_read``.

What a viewer's watches wait is in ``audience.Pace``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelTimings:
    """Seconds."""

    jaeger: float = 30.0
    """One question to Jaeger."""
