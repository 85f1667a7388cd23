"""The security model: each test that it names exists, each bound is what is built, each threat has a test."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/security.md", *sorted((ROOT / "docs/security").glob("*.md"))]
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
BOUND = re.compile(r"`([a-z0-9_.]+):(_?[A-Z_]+|Timings\.[a-z_]+)`")
"""A constant, or the production value of a field of timings."""
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of each row of the tables below a heading, without their heads."""
    below = re.split(rf"^##? {heading}$", PAGE, maxsplit=1, flags=re.MULTILINE)[-1]
    part = re.split(r"^##? ", below, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("|") and not line.startswith("|---")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in found if "Test" not in row]


THREATS = rows("Threats")
BOUNDS = rows("Resource limits")


def test_there_is_something_to_look_at() -> None:
    assert len(THREATS) > 20
    assert len(BOUNDS) > 20


@pytest.mark.parametrize("name", sorted({path + (f"::{test}" if test else "") for path, test in TEST.findall(PAGE)}))
def test_every_test_that_is_named_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert (ROOT / path).exists(), path
    assert re.search(rf"^(?:async )?def {test or 'test_'}", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (
        name
    )


@pytest.mark.parametrize("row", THREATS, ids=lambda row: row[0][:40])
def test_every_threat_has_something_that_stops_it_and_a_test_that_shows_it(row: list[str]) -> None:
    threat, stopped, shown, _ = row
    assert threat
    assert stopped
    assert TEST.search(shown)


@pytest.mark.parametrize("row", BOUNDS, ids=lambda row: row[0][:40])
def test_every_bound_is_as_it_is_built(row: list[str]) -> None:
    _, documented, place, happens, shown = row
    found = BOUND.fullmatch(place)
    assert found is not None, place
    number, *unit = documented.split()
    wanted = float(number.replace(",", "")) * UNITS.get(unit[0] if unit else "", 1)
    name, _, default = found[2].partition(".")
    built = getattr(importlib.import_module(found[1]), name)
    assert (getattr(built(), default) if default else built) == wanted, place
    assert happens
    assert TEST.search(shown)
