"""The production timings of node_installer: a changed one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from node_installer.fetch.web import Web
from node_installer.spans import Tracer
from node_installer.timings import Timings


def test_the_production_timings_are_these() -> None:
    assert asdict(Timings()) == {
        "pause": 1,
        "lock": 0.2,
        "ending": {"term": 5, "kill": 5, "poll": 0.05, "cleanup": 10, "watch": 0.5},
        "runtime": {"probe": 2, "poll": 0.25, "stop": 20, "reload": 20},
    }
    assert Tracer(None, None).seconds == 2
    assert Web().pause == Timings().pause
