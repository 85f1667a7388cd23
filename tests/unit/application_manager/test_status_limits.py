"""The size of wadm's messages in a status."""

from __future__ import annotations

import json

import pytest

from application_manager.domain.status_limits import (
    SCALERS_BYTES,
    SCALERS_MOST,
    VERSIONS_BYTES,
    scalers_of,
    versions_of,
)
from trellis.lattice.domain.replies import Scaler


def size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def test_scalers_that_fit_keep_the_order_and_messages_of_wadm() -> None:
    scalers = [Scaler("SpreadScaler", "a", "deployed"), Scaler("LinkScaler", "b", "failed", "it is ›broken‹")]
    assert scalers_of(scalers) == (
        [
            {"kind": "SpreadScaler", "name": "a", "status": "deployed"},
            {"kind": "LinkScaler", "name": "b", "status": "failed", "message": "it is ›broken‹"},
        ],
        0,
    )


@pytest.mark.parametrize("message", ["", "x" * 1024, "ä" * 1024])
def test_healthy_scalers_are_left_out_first_and_all_left_out_are_counted(message: str) -> None:
    statuses = [("deployed", "") if at % 2 else ("failed", message) for at in range(10_000)]
    scalers = [Scaler("SpreadScaler", f"component-{at}", *status) for at, status in enumerate(statuses)]
    rows, left_out = scalers_of(scalers)
    assert len(rows) + left_out == len(scalers)
    assert 0 < len(rows) <= SCALERS_MOST
    assert sum(map(size, rows)) <= SCALERS_BYTES
    assert {row["status"] for row in rows} == {"failed"}
    assert [row["name"] for row in rows] == [f"component-{2 * at}" for at in range(len(rows))]


def test_the_newest_versions_that_fit_are_there_and_the_deployed_one() -> None:
    names = [f"{at}-{'v' * 1000}" for at in range(1000)]
    rows = versions_of(names, names[3])
    assert sum(size(row["version"]) for row in rows) <= VERSIONS_BYTES + size(names[3])
    assert rows[0] == {"version": names[3], "deployed": True}
    assert [row["version"] for row in rows[1:]] == names[-len(rows) + 1 :]


def test_of_many_short_versions_the_newest_are_there_and_the_deployed_one_among_as_many_as_the_schema_takes() -> None:
    names = [str(at) for at in range(1500)]
    rows = versions_of(names, "7")
    assert len(rows) <= 1000
    assert [row["version"] for row in rows if row["deployed"]] == ["7"]
    assert rows[-1]["version"] == "1499"
