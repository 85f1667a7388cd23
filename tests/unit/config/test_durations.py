"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.config.durations import parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("30s", 30.0),
        (" 5m ", 300.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        ("1m500ms", 60.5),
        ("0", 0.0),
        (20, 20.0),
        (0.25, 0.25),
    ],
)
def test_it_becomes_seconds(text: object, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "5 m",
        "-1s",
        "-1",
        "1h30",
        "5M",
        "1e3",
        "inf",
        "nan",
        "٣s",
        True,
        None,
        -1,
        float("nan"),
        "9" * 400,
        10**400,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_anything_else_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match=r"\b30s, 5m or 1h30m$"):
        parse_seconds(value)


@given(st.integers(0, 1000), st.integers(0, 59), st.integers(0, 59))
def test_parts_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_seconds(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds
