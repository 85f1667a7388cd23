"""An Application with an unreadable status is an Application without that part of it."""

from __future__ import annotations

from typing import Any

import pytest

from application_manager.domain.views import read_base, read_wins, view_application

GOOD = {"side": "wadm", "time": "2026-01-31T12:00:00Z"}
ITEM = {
    "metadata": {"name": "shop", "namespace": "a", "uid": "u", "resourceVersion": "1"},
    "spec": {"components": []},
}


@pytest.mark.parametrize(
    "wins", [5, "x", [5], [{}], [{"side": "wadm"}], [{"side": "x", "time": GOOD["time"]}], [GOOD | {"time": 5}]]
)
def test_a_win_that_cannot_be_read_is_none(wins: Any) -> None:
    assert read_wins({"wins": wins}) == ()
    assert view_application(ITEM | {"status": {"wins": wins}}).object.wins == ()
    if isinstance(wins, list):
        assert len(read_wins({"wins": [*wins, GOOD]})) == 1


@pytest.mark.parametrize("synced", [5, {}, {"specDigest": "a"}, {"specDigest": 5, "wadmVersion": "v1"}])
def test_a_base_that_cannot_be_read_was_never_recorded(synced: Any) -> None:
    assert read_base({"synced": synced}) is None
    assert view_application(ITEM | {"status": {"synced": synced}}).object.base is None


def test_a_base_is_read() -> None:
    assert read_base({"synced": {"specDigest": "a", "wadmVersion": "v1"}}) is not None
