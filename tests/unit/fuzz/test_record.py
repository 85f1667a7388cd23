"""The record of fuzzing, and the part of a page that is made of it."""

from __future__ import annotations

from pathlib import Path

from fuzz.catalogue import TARGETS
from fuzz.found import FOUND
from fuzz.record import RECORD, SECTION, Line, append, read, summary
from fuzz.run import parts

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"


def test_appended_lines_are_read_back_and_shown(tmp_path: Path) -> None:
    lines = [Line("nkeys", 0, 1000, 0, "abc"), Line("nkeys", 5000, 500, 0, "abc")]
    for line in lines:
        append(tmp_path / "record", [line])
    assert read(tmp_path / "record") == lines
    assert "| 1,500 | 0–999, 5000–5499 |" in summary(lines)


def test_the_page_matches_the_record() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert SECTION.replace(text, summary(read(RECORD))) == text, "run make generate"


def test_every_fault_is_of_a_target() -> None:
    assert FOUND.keys() <= TARGETS.keys()


def test_each_target_has_its_share_of_the_cases_and_no_number_twice() -> None:
    names = list(TARGETS)
    drawn: dict[str, list[int]] = {}
    for name, numbers in parts(names, 70, 20_000):
        drawn.setdefault(name, []).extend(numbers)
    assert drawn.keys() == TARGETS.keys()
    assert all(numbers == list(range(70, 70 + len(numbers))) for numbers in drawn.values())
    assert 20_000 - len(names) <= sum(map(len, drawn.values())) <= 20_000
