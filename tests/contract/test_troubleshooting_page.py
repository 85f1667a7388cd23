"""The page from symptom to cause names what the first line of each situation names, and the row that counts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.nodes.situations import SITUATIONS, Situation
from support.suite.commands import expect_command
from trellis.bus.connection.connection import REFUSED

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SUITE = Path(__file__).parents[1] / "integration" / "trellis_cli" / "test_explained.py"


ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]


def first_line(row: str) -> str:
    return row.split("``")[1]


def test_the_table_has_a_row_for_each_situation() -> None:
    assert len(ROWS) == len(SITUATIONS)


@pytest.mark.parametrize(("row", "situation"), list(zip(ROWS, SITUATIONS.values(), strict=True)), ids=SITUATIONS)
def test_each_row_names_what_its_situation_is_known_by(row: str, situation: Situation) -> None:
    assert situation.names(first_line(row))
    assert f"| `{situation.row}` |" in row


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_is_made_by_the_suite(name: str) -> None:
    assert f'"{name}"' in SUITE.read_text(encoding="utf-8")


def test_the_commands_of_the_page_exist() -> None:
    for line in PAGE.splitlines():
        if line.startswith("    trellis "):
            expect_command(line.strip().removeprefix("trellis ").partition("#")[0])


def test_an_answer_fits_only_its_own_situation() -> None:
    situation, cause = SITUATIONS["missing Secret"], "Secret a/c is missing"
    line = {"about": "degraded", "ok": False, "text": cause, "do": None}
    page = {"subject": "hostgroup a/b", "cause": cause, "headline": f"hostgroup a/b: {cause}", "lines": [line]}
    assert situation.fits(page)
    assert not situation.fits(page | {"headline": f"hostgroup a/b: {cause.replace('a/c', 'c')}"})
    assert not situation.fits(page | {"lines": [line | {"about": "lattice"}]})
    assert not any(other.fits(page) for other in SITUATIONS.values() if other is not situation)


def test_a_reason_of_another_kind_is_another_situation() -> None:
    situation, cause = SITUATIONS["NATS credentials wrong"], f"LatticeUnreachable: {REFUSED} (nats://127.0.0.1:4222)"
    line = {"about": "lattice", "ok": False, "text": cause, "do": None}
    page = {"subject": "hostgroup a/b", "cause": cause, "headline": f"hostgroup a/b: {cause}", "lines": [line]}
    assert situation.fits(page)
    other = "LatticeUnreachable: connection refused"
    assert not situation.fits(page | {"cause": other, "lines": [line | {"text": other}]})
