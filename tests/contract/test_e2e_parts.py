"""`make test-all` has every test under tests/e2e, and its last record is in docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

from e2e.parts import PARTS
from e2e.record import SECTION, read, table

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"


def test_every_file_is_a_part() -> None:
    assert {part.tests for part in PARTS if part.tests} == set((TESTS / "e2e").rglob("test_*.py"))


def test_the_page_has_the_record() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert SECTION.begin in text
    assert SECTION.replace(text, table(read())) == text, "run make generate"


def test_each_recorded_part_exists() -> None:
    assert read().keys() <= {part.name for part in PARTS}
