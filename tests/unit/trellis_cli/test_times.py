"""Times on the command line: how long ago, or a timestamp."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trellis.config.settings import SettingsError
from trellis_cli.common.times import span

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10m", NOW - timedelta(minutes=10)),
        ("90", NOW - timedelta(seconds=90)),
        ("1d", NOW - timedelta(days=1)),
        ("2026-01-31T08:00:00Z", datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("2026-01-31t08:00:00.123456789z", datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=UTC)),
        ("2026-01-31 08:00:00+02:00", datetime(2026, 1, 31, 6, tzinfo=UTC)),
    ],
)
def test_a_time_is_how_long_ago_or_a_timestamp(text: str, moment: datetime) -> None:
    assert span(text, None, NOW) == (moment, None)
    assert span(None, text, NOW) == (None, moment)


def test_a_very_long_time_ago_is_as_long_as_any_stream_lasts() -> None:
    since, _ = span("99999999999d", None, NOW)
    assert since is not None
    assert since.year == 2016


@pytest.mark.parametrize("text", ["yesterday", "", "-5m", "2026-01-31", "2026-01-31T08:00:00", "2026-02-30T08:00:00Z"])
def test_anything_else_is_one_error_that_names_the_option(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--until: .*\b10m\b"):
        span(None, text, NOW)


def test_an_empty_span_is_an_error_and_so_is_one_that_begins_in_the_future() -> None:
    with pytest.raises(SettingsError, match=r"--until: .*'2h'"):
        span("1h", "2h", NOW)
    with pytest.raises(SettingsError, match="--since"):
        span("2027-01-01T00:00:00Z", None, NOW)
    assert span("1h", "2027-01-01T00:00:00Z", NOW)[1] is not None
