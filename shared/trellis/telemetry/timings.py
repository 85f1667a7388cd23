"""Timings of telemetry; tests use shorter ones. Pure. Called by ``export`` and ``trace_spans``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TelemetryTimings:
    """Seconds."""

    repeat: float = 300.0
    """Between two warnings about one outage of the collector, or of one kind of the SDK."""
    batch: float = 1.0
    """Between two batches: a demo should show its spans at once; five seconds, the SDK's default, feel broken."""
    story: float = 600.0
    """After that without a span what happens to a key is another story."""
