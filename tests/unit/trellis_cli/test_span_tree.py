"""Traces as trees."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from trellis.read_model.traces.span_tree import Branch, forest
from trellis_cli.trace.span_tree import lines_of, render

MS = 1_000_000


@dataclass(frozen=True)
class FakeSpan:
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int = 0
    end_ns: int = 0
    service: str = "trellis-node-watcher"


def shape(branches: tuple[Branch, ...]) -> list[tuple[int, str]]:
    return [(depth, span.name) for branch in branches for depth, span in branch.walk()]


def text_of(spans: list[FakeSpan], width: int = 120) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(render("trace 1 of node-1", forest(spans)))
    return captured.get()


ROOT = FakeSpan("1", "", "reconcile", 100 * MS, 110 * MS)
PUBLISH = FakeSpan("2", "1", "publish", 101 * MS, 104 * MS)
RECEIVE = FakeSpan("3", "2", "receive", 150 * MS, 151 * MS, "trellis-provisioner")
PATCH = FakeSpan("4", "1", "patch", 105 * MS, 109 * MS)
TRACE = [ROOT, PUBLISH, RECEIVE, PATCH]


def test_spans_hang_below_what_caused_them_in_the_order_they_began() -> None:
    expected = [(0, "reconcile"), (1, "publish"), (2, "receive"), (1, "patch")]
    shuffled = TRACE.copy()
    random.Random(7).shuffle(shuffled)
    assert shape(forest(TRACE)) == expected
    assert shape(forest(shuffled)) == expected


def test_a_span_whose_parent_did_not_come_in_begins_a_tree_of_its_own() -> None:
    assert shape(forest([RECEIVE, PATCH, PUBLISH])) == [(0, "publish"), (1, "receive"), (0, "patch")]


def test_parents_in_a_circle_are_shown_all_the_same() -> None:
    circle = [FakeSpan("1", "2", "a", 1), FakeSpan("2", "1", "b", 2), FakeSpan("3", "3", "own", 3)]
    assert sorted(name for _, name in shape(forest(circle))) == ["a", "b", "own"]


def test_a_trace_deeper_than_pythons_stack_is_a_tree_too() -> None:
    chain = [FakeSpan(str(number), str(number - 1) if number else "", f"s{number}", number) for number in range(5000)]
    found = shape(forest(chain))
    assert found == [(number, f"s{number}") for number in range(5000)]
    (branch,) = forest(chain[:3])
    assert [guide for guide, _ in lines_of(branch)] == ["", "└ ", "  └ "]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9), st.integers(0, 99)), unique_by=lambda row: row[0]))
def test_every_span_is_shown_exactly_once(rows: list[tuple[int, int, int]]) -> None:
    spans = [FakeSpan(str(own), str(parent) if parent >= 0 else None, str(own), start) for own, parent, start in rows]
    assert sorted(name for _, name in shape(forest(spans))) == sorted(span.name for span in spans)


def test_a_line_has_offset_duration_service_and_name() -> None:
    lines = [line.split() for line in text_of(TRACE).splitlines()]
    assert ["+0.0", "10.0", "node-watcher", "reconcile"] in lines
    assert ["+50.0", "1.0", "provisioner", "│", "└", "receive"] in lines
    assert ["+5.0", "4.0", "node-watcher", "└", "patch"] in lines


def test_a_narrow_terminal_cuts_names_and_never_figures() -> None:
    lines = text_of([FakeSpan("1", "", "x" * 90, 0, 1234 * MS)], width=50).splitlines()
    assert "1234.0" in lines[2]
    assert lines[2].rstrip().endswith("…")
    assert max(map(len, lines)) <= 50


def test_an_empty_trace_is_an_empty_table() -> None:
    assert "SPAN" in text_of([])
