"""Timings: every production value, so that a changed one is seen."""

from __future__ import annotations

from dataclasses import asdict

from secrets_backend.timings import Timings
from trellis.kube.watch_timings import WatchTimings


def test_the_production_timings() -> None:
    found = asdict(Timings())
    assert Timings().watch == WatchTimings(), "as everywhere"
    del found["watch"]
    assert found == {
        "other": 30.0,
        "probe": 15.0,
        "probe_answer": 2.0,
        "changes": 60.0,
        "change_read": 10.0,
        "definition": 5.0,
        "grants": 300.0,
        "recheck": 30.0,
        "confirm": 300.0,
        "stale": 120.0,
        "answer": 8.0,
        "late": 1.0,
        "report": 10.0,
        "sweep": 5.0,
        "settle": 5.0,
        "poll": 0.05,
        "close": 2.0,
        "end": 10.0,
        "restart": 5.0,
        "key": {"look": 10.0, "soon": 1.0, "read": 5.0},
        "accounts": {"silence": 0.75, "look": 4.0, "former": 3.0},
        "audit": {"gap": 0.005, "pace": 0.05, "bus_retry": 5.0, "report": 10.0},
    }
