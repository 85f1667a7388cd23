"""What was not done before a crash is come to again, or it is undone."""

from __future__ import annotations

from chaos.crashes import Telling
from chaos.points import Point, When
from chaos.stories import NODES
from support.suite.naming import lacking

WRITE, EVENT = "create jobs", "say provision.started"


def came_to(*passed: tuple[str, When]) -> list[Point]:
    return [Point(what, 1, when) for what, when in passed]


def test_a_write_that_nobody_came_to_again_after_a_crash_before_it_is_undone() -> None:
    telling = Telling(NODES, (Point(WRITE, 1, When.BEFORE),), passed=came_to((WRITE, When.BEFORE)))
    [undone] = telling.undone()
    assert lacking(undone, WRITE) == []


def test_one_that_a_successor_came_to_is_not() -> None:
    passed = came_to((WRITE, When.BEFORE), ("patch nodes", When.BEFORE), (WRITE, When.BEFORE))
    assert list(Telling(NODES, (Point(WRITE, 1, When.BEFORE),), passed=passed).undone()) == []


def test_after_it_was_done_nobody_has_to_come_again() -> None:
    telling = Telling(NODES, (Point(WRITE, 1, When.AFTER),), passed=came_to((WRITE, When.AFTER)))
    assert list(telling.undone()) == []


def test_nor_to_one_that_nobody_died_at() -> None:
    point = Point(WRITE, 1, When.BEFORE)
    assert list(Telling(NODES, (point,), left=[point]).undone()) == []


def test_nor_to_what_is_said_only_while_it_is_so() -> None:
    telling = Telling(NODES, (Point(EVENT, 1, When.BEFORE),), passed=came_to((EVENT, When.BEFORE)))
    assert list(telling.undone()) == []
