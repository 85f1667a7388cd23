"""Production timings of the command line, each by its name: a change of one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from trellis_cli.common.timings import WatchTimings


def test_production_timings() -> None:
    assert asdict(WatchTimings()) == {"pause": 1.0, "rest": 4.0, "outage": 30.0}
