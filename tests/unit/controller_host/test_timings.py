"""Timings: every production value, so that a changed one is seen."""

from __future__ import annotations

from dataclasses import asdict

from controller_host.timings import Timings
from trellis.kube.watch_timings import WatchTimings


def test_the_production_timings() -> None:
    found = asdict(Timings())
    assert Timings().watch == Timings().caches.watch == WatchTimings(), "as everywhere"
    del found["watch"], found["caches"]["watch"]
    assert found == {
        "calls": {"request": 15.0, "call": 120.0, "late": 1.0},
        "reports": {"counters": 60.0, "events": 600.0, "traps": 60.0, "bus_retry": 5.0, "conflict": 0.5},
        "reviews": {"keep": 60.0, "forget": 1.0, "ask": 5.0, "retry_first": 0.5, "retry_most": 10.0},
        "sources": {"connect": 10.0, "patience": 20.0, "most": 120.0, "file": 60.0, "end": 1.0},
        "disk": {"first": 1.0, "most": 30.0, "least": 0.1, "look": 1.0, "sweep": 60.0, "busy": 5.0, "young": 60.0},
        "caches": {"linger": 60.0, "look": 1.0, "absent": 10.0},
        "turns": {
            "slice": 0.05,
            "fetching": 2.0,
            "unknown": 1.0,
            "denied": 60.0,
            "unwritten": 5.0,
            "poll": 0.02,
            "engine": 30.0,
        },
        "refusals": {"retry": 15.0, "spread": 0.25},
        "give_back": 30.0,
        "fresh": 0.5,
    }
