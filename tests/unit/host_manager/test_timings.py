"""The production timings of host_manager: a changed one is seen here."""

from __future__ import annotations

import math
from dataclasses import asdict

from host_manager.timings import Timings
from trellis.lattice.timings import LatticeTimings, ListenTimings
from trellis.v2.timings import V2Timings


def test_the_production_timings_are_these() -> None:
    assert asdict(Timings()) == {
        "unknown": 5,
        "gathering": 10,
        "patience": 40,
        "full_read": 5,
        "rest": 300,
        "undecided": 30,
        "copy_again": 0.5,
        "publish": 5,
        "give_way": 0.3,
        "late": 0.05,
        "status_delay": 0.2,
        "half_created": 10,
        "first_status": 2,
        "recycle_first": 120,
        "recycle_most": 3600,
        "role": (0.05, 0.1, 0.2, 0.4, 0.8),
        "v2": asdict(V2Timings()),
        "v2_settle": 0.3,
        "v2_look": 15,
        "v2_served": 60,
        "v2_heartbeats": {
            "first": 1,
            "most": 60,
            "listen": asdict(ListenTimings()) | {"listen": math.inf, "look": 1},
            "hosts": asdict(V2Timings()),
        },
        "deletions": {"settle": 2, "together": 60, "grace": 300},
        "refusals": {"retry": 15, "spread": 0.25},
        "lattice": asdict(LatticeTimings()),
    }
