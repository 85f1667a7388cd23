"""Work that was unfinished at a crash is resumed or not_repeated."""

from __future__ import annotations

from chaos.crashes import Attempt
from chaos.points import Point, When
from chaos.scenarios import NODES
from support.suite.naming import lacking

WRITE, EVENT = "create jobs", "publish provision.started"


def came_to(*passed: tuple[str, When]) -> list[Point]:
    return [Point(what, 1, when) for what, when in passed]


def test_a_write_not_repeated_after_a_crash_before_it_is_reported_as_missing() -> None:
    attempt = Attempt(NODES, (Point(WRITE, 1, When.BEFORE),), passed=came_to((WRITE, When.BEFORE)))
    [not_repeated] = attempt.not_repeated()
    assert lacking(not_repeated, WRITE) == []


def test_one_that_a_successor_came_to_is_not() -> None:
    passed = came_to((WRITE, When.BEFORE), ("patch nodes", When.BEFORE), (WRITE, When.BEFORE))
    assert list(Attempt(NODES, (Point(WRITE, 1, When.BEFORE),), passed=passed).not_repeated()) == []


def test_a_completed_write_need_not_be_repeated() -> None:
    attempt = Attempt(NODES, (Point(WRITE, 1, When.AFTER),), passed=came_to((WRITE, When.AFTER)))
    assert list(attempt.not_repeated()) == []


def test_a_write_without_a_crash_need_not_be_repeated() -> None:
    point = Point(WRITE, 1, When.BEFORE)
    assert list(Attempt(NODES, (point,), left=[point]).not_repeated()) == []


def test_a_temporary_report_need_not_be_repeated() -> None:
    attempt = Attempt(NODES, (Point(EVENT, 1, When.BEFORE),), passed=came_to((EVENT, When.BEFORE)))
    assert list(attempt.not_repeated()) == []
