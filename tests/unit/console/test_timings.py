"""Timings: every production value, so that a changed one is seen."""

from __future__ import annotations

from dataclasses import asdict

from console.timings import Timings


def test_the_production_timings() -> None:
    assert asdict(Timings()) == {
        "body": 10.0,
        "idle": 1800.0,
        "stream": 600.0,
        "heartbeat": 15.0,
        "slow": 10.0,
        "coalesce": 0.1,
        "linger": 20.0,
        "sweep": 1.0,
        "recheck": 60.0,
        "permissions": 10.0,
        "review": 5.0,
        "replay": 8.0,
        "probe": 10.0,
        "restart": 1.0,
        "bus_first": 0.5,
        "bus_most": 10.0,
        "keepalive": 75.0,
        "shutdown": 2.0,
        "traces": 5.0,
        "watch": {
            "relist": 600.0,
            "watch": (40, 60),
            "idle": 90.0,
            "backoff_first": 0.2,
            "backoff_most": 10.0,
            "stalled_after": 60.0,
            "probe": 10.0,
            "absent": 30.0,
            "refused": 15.0,
            "lived": 5.0,
            "early": 1.0,
        },
    }
