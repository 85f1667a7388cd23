"""The production timings of node_watcher: a changed one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from node_watcher.timings import Timings


def test_the_production_timings_are_these() -> None:
    assert asdict(Timings()) == {
        "publish": 5,
        "deletions": {"settle": 2, "together": 60, "grace": 300},
        "refusals": {"retry": 15, "spread": 0.25},
    }
