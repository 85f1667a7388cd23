"""The production timings of lattices: a changed one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from trellis.lattice.timings import LatticeTimings


def test_the_production_timings_are_these() -> None:
    assert asdict(LatticeTimings()) == {
        "silence": 70,
        "report": 60,
        "connection": {
            "connect": 5,
            "goodbye": 1,
            "ping": 10,
            "look": 5,
            "backoff_first": 0.5,
            "backoff_most": 30,
            "flood": {"unavailable": 30, "unavailable_most": 300, "forgotten": 900},
            "outage": {"pause": 60, "pause_most": 3600},
        },
        "hosts": {"tick": 5, "ping": 1, "answer": 2, "all": 10},
        "models": {"refresh": 60, "again": 15, "answer": 10, "quiet": 1},
        "comparison": {
            "every": 180,
            "events_missing": 15,
            "settle": 0.05,
            "rest": 3,
            "answer": 10,
            "again": 10,
            "unconfirmed": 2,
            "busy": 60,
        },
        "wadm": {"answer": 5, "stored": 10},
        "bucket": {
            "every": 600,
            "fetch": 5,
            "look": 10,
            "inactive": 60,
            "goodbye": 1,
            "join": 0.1,
            "too_many": 120,
            "backoff_first": 0.2,
            "backoff_most": 10,
        },
        "statuses": {"every": 300, "unconfirmed": 20, "again": 10, "settle": 0.1},
        "probe": {"every": 5, "again": 1},
        "listing": {"every": 15, "settle": 0.1, "afresh": 600},
        "claim": {"lifetime": 600, "look": 15, "answer": 5, "duplicates": 120},
        "forwarder": {
            "fetch": 30,
            "late": 30,
            "ack_wait": 5,
            "look": 10,
            "inactive": 3600,
            "backoff_first": 0.2,
            "backoff_most": 10,
        },
    }
