"""The production timings of service_reflector: a changed one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from service_reflector.timings import Timings
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.timings import LatticeTimings


def test_the_production_timings_are_these() -> None:
    assert asdict(Timings()) == {
        "group_grace": 300,
        "hosts": 1,
        "publish": 5,
        "refusals": {"retry": 15, "spread": 0.25},
        "watch": asdict(WatchTimings()),
        "lattice": asdict(LatticeTimings()),
    }
