"""docs/controllers/conditions.md documents each reason of the code, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller_host.domain.maximum_limits import ABOVE_MAXIMUM
from controller_host.domain.views import INVALID_SPEC
from controller_host.domain.watch_specs import RefusalReason
from controller_host.guest import refusals
from controller_host.module.preparing import ReferenceReason
from controller_host.report.status import FETCHING, PENDING
from trellis.registries.domain.errors import SourceReason

PAGE = (Path(__file__).parents[2] / "docs" / "controllers" / "conditions.md").read_text()
ACCEPTED = {
    *SourceReason,
    *refusals.RefusalReason,
    *ReferenceReason,
    ABOVE_MAXIMUM,
    INVALID_SPEC,
    PENDING.reason,
    FETCHING.reason,
}


def table(head: str) -> dict[str, list[str]]:
    """Return the rows of a table, by what is in code in their first column; the other columns as they are."""
    found = re.search(rf"^\| `{head}` \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None, f"there is no table of {head}"
    rows: dict[str, list[str]] = {}
    for line in found[1].splitlines():
        first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        for name in re.findall(r"`([^`]+)`", first):
            assert name not in rows, f"{name} stands there twice"
            rows[name] = rest
    return rows


@pytest.mark.parametrize(
    ("head", "reasons"),
    [
        ("Accepted", ACCEPTED),
        ("WatchesGranted", {*RefusalReason}),
    ],
)
def test_every_reason_stands_on_the_page_and_no_other(head: str, reasons: set[str]) -> None:
    rows = table(head)
    assert sorted(rows) == sorted(map(str, reasons))
    assert all(cell for cells in rows.values() for cell in cells)
