"""The output of the breaker commands about a record: its state, its reason, a remedy."""

from __future__ import annotations

from dataclasses import replace

from support.suite.naming import lacking
from trellis.limits.breaker import Closing, Opening, State
from trellis_cli.circuit_breaker.model import Position, row_of, rows_of
from trellis_cli.status.rows import breakers_part

NOW = 1_000_000.0
OPENING = Opening(NOW, NOW + 600, "more than 5 of 40 nodes were to go within 60 s", frozenset("abcd"), tuple("wxyz"))
OPEN = row_of("node-watcher", "nodes", State(opening=OPENING), NOW + 1)


def test_every_known_circuit_breaker_and_every_further_entry_of_a_record_has_a_row() -> None:
    kinds = {"node-watcher": ("nodes",), "provisioner": ("jobs",)}
    rows = rows_of(kinds, {"node-watcher": {"nodes": State(opening=OPENING), "later": State()}}, NOW)
    assert [(row.service, row.kind, row.position) for row in rows] == [
        ("node-watcher", "nodes", Position.OPEN),
        ("node-watcher", "later", Position.CLOSED),
        ("provisioner", "jobs", Position.CLOSED),
    ]


def test_an_open_circuit_breaker_shows_its_start_end_number_reason_and_remedy() -> None:
    document = OPEN.document()
    assert (document["since"], document["until"]) == ("1970-01-12T13:46:40Z", "1970-01-12T13:56:40Z")
    assert (document["state"], document["paused"], document["reason"]) == ("Open", 4, OPENING.reason)
    assert "trellis circuit-breaker close node-watcher nodes" in OPEN.advice()
    assert lacking(OPEN.advice(), "w", "x", "y") == []
    assert "…" in OPEN.advice()


def test_an_expired_circuit_breaker_is_closed() -> None:
    assert row_of("node-watcher", "nodes", State(opening=OPENING), NOW + 600).position is Position.CLOSED


def test_a_record_that_makes_no_sense_is_not_shown_as_closed() -> None:
    row = row_of("node-watcher", "nodes", None, NOW)
    assert row.position is Position.UNREADABLE
    assert "trellis circuit-breaker close node-watcher nodes" in row.advice()
    assert row.document()["since"] is None


def test_the_user_who_closed_it_stays_after_the_permission_expires() -> None:
    state = State(closing=Closing(NOW, NOW + 600, "ada", permitted=frozenset("a")))
    assert row_of("s", "k", state, NOW + 1).document()["permitted"] == {
        "deletions": "Paused",
        "until": "1970-01-12T13:56:40Z",
    }
    later = row_of("s", "k", state, NOW + 600).document()
    assert (later["permitted"], later["closed"]["by"]) == (None, "ada")


def test_the_status_has_a_problem_while_one_is_open() -> None:
    assert breakers_part([replace(OPEN, position=Position.CLOSED, opening=None)]).problem == ""
    part = breakers_part([OPEN])
    assert lacking(part.problem, "node-watcher", "4", "nodes", "trellis circuit-breaker status") == []
    assert part.data["open"][0]["paused"] == 4


def test_one_that_is_open_and_holds_nothing_any_more_is_no_problem() -> None:
    emptied = row_of("node-watcher", "nodes", State(opening=replace(OPENING, paused=frozenset(), examples=())), NOW + 1)
    part = breakers_part([emptied])
    assert (part.problem, part.data["open"][0]["paused"]) == ("", 0)
    assert "1970-01-12T13:56:40Z" in emptied.advice()
    assert breakers_part([row_of("node-watcher", "nodes", None, NOW)]).problem != ""
