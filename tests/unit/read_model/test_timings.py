"""Production timings of the read model, each by its name: a change of one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from trellis.kube.watch_timings import WatchTimings
from trellis.read_model.live.live_model import Pace
from trellis.read_model.timings import ModelTimings


def test_production_timings() -> None:
    assert asdict(ModelTimings()) == {"jaeger": 30.0}
    assert asdict(Pace(0.1, 10)) == {
        "seconds": 0.1,
        "ids_kept": 10,
        "look": 0.5,
        "evaluate": 1.0,
        "evaluate_share": 0.1,
        "watch": {**asdict(WatchTimings()), "watch": (40, 60), "absent": 30.0, "refused": 15.0},
    }
