"""Production timings of what all services have in common, each by its name: a change of one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from trellis.bus.timings import BusTimings
from trellis.config.timings import DeletionTimings, ProcessTimings, ServiceTimings
from trellis.kube.timings import KubeTimings


def test_production_timings_of_a_service() -> None:
    assert asdict(ServiceTimings()) == {
        "resync": 600.0,
        "bus_head_start": 3.0,
        "prepare": 15.0,
        "close": 3.0,
        "traces": 5.0,
        "again": 1.0,
        "kube": asdict(KubeTimings()),
        "bus": {**asdict(BusTimings()), "publish_budget": 3.0},
    }
    assert asdict(DeletionTimings()) == {"settle": 2.0, "together": 60.0, "grace": 300.0}


def test_production_timings_of_a_process() -> None:
    assert asdict(ProcessTimings()) == {
        "barrier": 3.0,
        "health": {"beat": 1.0, "idle": 75.0, "shutdown": 1.0},
        "ending": {"echo": 1.0, "afterglow": 1.0},
    }
