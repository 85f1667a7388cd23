"""Timings of telemetry; tests use shorter ones. Pure. Called by ``export`` and ``trace_spans``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TelemetryTimings:
    """Durations in seconds."""

    repeat: float = 300.0
    """Between two warnings about one outage of the collector, or of one kind of the SDK."""
    batch: float = 1.0
    """Between two batches: a demo shows its spans immediately; the default of the SDK is 5 s."""
    trace_idle: float = 600.0
    """Without a span of a key, after which its next run starts a new trace."""
