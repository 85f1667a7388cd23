"""The page on troubleshooting has a section for each situation: its first line, the row that counts it, its cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.nodes.situations import SITUATIONS, Situation
from support.suite.commands import expect_command
from trellis.bus.connection.connection import REFUSED

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SUITE = Path(__file__).parents[1] / "integration" / "trellis_cli" / "test_explained.py"
FIRST_LINE = "\n- First line: ``"
PROBLEMS = re.split(r"^### ", re.sub(r"^## .*\n", "", PAGE, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
"""The sections of the page, each with its heading; those of situations have a first line."""
SECTIONS = [section for section in PROBLEMS if FIRST_LINE in section]


def test_the_page_has_a_section_for_each_situation() -> None:
    assert len(SECTIONS) == len(SITUATIONS)


@pytest.mark.parametrize(
    ("section", "situation"), list(zip(SECTIONS, SITUATIONS.values(), strict=True)), ids=SITUATIONS
)
def test_each_section_names_what_its_situation_is_known_by(section: str, situation: Situation) -> None:
    assert situation.names(section.partition(FIRST_LINE)[2].partition("``")[0])
    assert f"\n- Row: `{situation.row.replace('_', '-')}`\n" in section, "as the table of `trellis status` has it"


@pytest.mark.parametrize("section", PROBLEMS, ids=lambda section: section.partition("\n")[0])
def test_each_section_has_a_symptom_then_a_cause_then_a_resolution(section: str) -> None:
    assert re.findall(r"^(?:- (Symptom): |\*\*(Cause|Resolution):\*\* )", section, re.MULTILINE) == [
        ("Symptom", ""),
        ("", "Cause"),
        ("", "Resolution"),
    ]


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_is_made_by_the_suite(name: str) -> None:
    assert f'"{name}"' in SUITE.read_text(encoding="utf-8")


def test_the_commands_of_the_page_exist() -> None:
    lines = re.findall(r"`trellis ([^`]+)`", PAGE)
    assert lines
    for line in lines:
        expect_command(line)


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
