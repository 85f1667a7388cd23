"""The page from symptom to cause has the first line of each situation of the suite, and the row that counts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.nodes.situations import SITUATIONS, Situation
from support.suite.commands import expect_command

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SUITE = Path(__file__).parents[1] / "integration" / "trellis_bundle" / "test_explained.py"


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_each_situation_is_a_row_of_the_table(situation: Situation) -> None:
    rows = [line for line in PAGE.splitlines() if f"`` {situation.line} ``" in line]
    assert len(rows) == 1
    assert f"| `{situation.row}` |" in rows[0]


def test_the_table_has_no_other_rows() -> None:
    assert sum(line.startswith("| ") for line in PAGE.splitlines()) == len(SITUATIONS) + 1


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_is_made_by_the_suite(name: str) -> None:
    assert f'"{name}"' in SUITE.read_text(encoding="utf-8")


def test_the_commands_of_the_page_exist() -> None:
    for line in PAGE.splitlines():
        if line.startswith("    trellis "):
            expect_command(line.strip().removeprefix("trellis ").partition("#")[0])


def test_a_line_fits_only_its_own_situation() -> None:
    situation = SITUATIONS["missing Secret"]
    line = "hostgroup a/b is not ready: Secret a/c is missing. Create it, or name another in the spec"
    assert situation.fits(line)
    assert not situation.fits(line.replace("missing", "there"))
    assert not any(other.fits(line) for other in SITUATIONS.values() if other is not situation)
