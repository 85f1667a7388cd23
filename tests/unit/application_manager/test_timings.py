"""The production timings of application_manager: a changed one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from application_manager.timings import Timings
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.timings import LatticeTimings


def test_the_production_timings_are_these() -> None:
    assert asdict(Timings()) == {
        "soon": 0.2,
        "unavailable": 2,
        "unreported": 5,
        "look": 5,
        "nowhere": 60,
        "refused_first": 2,
        "refused_most": 300,
        "status": 5,
        "publish": 5,
        "awaited": 15,
        "settle": 10,
        "unlisted": 5,
        "contest": 600,
        "counted": 1,
        "watch": asdict(WatchTimings()),
        "lattice": asdict(LatticeTimings()),
    }
