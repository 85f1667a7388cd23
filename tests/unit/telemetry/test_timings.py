"""Production timings of telemetry, each by its name: a change of one is seen here."""

from __future__ import annotations

import inspect
from dataclasses import asdict

from trellis.telemetry import Telemetry
from trellis.telemetry.timings import TelemetryTimings


def test_production_timings() -> None:
    assert asdict(TelemetryTimings()) == {"repeat": 300.0, "batch": 1.0, "trace_idle": 600.0}
    assert inspect.signature(Telemetry.shutdown).parameters["seconds"].default == 5.0
