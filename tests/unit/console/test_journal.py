"""Differences of the journal: applied to any former revision they give the present state."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from console.domain.messages import delta_messages, message, message_id, parse_message_id
from trellis.read_model.entities.journal import Delta, Journal

IDS = st.sampled_from("abcdef")
CHANGES = st.dictionaries(IDS, st.none() | st.fixed_dictionaries({"n": st.integers(0, 3)}), max_size=4)


def applied(state: dict[str, Any], delta: Delta) -> dict[str, Any]:
    kept = {id_: entity for id_, entity in state.items() if id_ not in delta.deleted}
    return kept | dict(delta.changed)


@given(st.lists(CHANGES, max_size=20), st.integers(1, 60))
def test_a_difference_applied_to_any_former_state_gives_the_newest(changes: list[dict[str, Any]], kept: int) -> None:
    journal = Journal(kept)
    states: dict[int, dict[str, Any]] = {0: {}}
    for change in changes:
        journal.write(change)
        states[journal.revision] = dict(journal.entities)
    for revision, state in states.items():
        delta = journal.since(revision)
        if delta is not None:
            assert applied(state, delta) == journal.entities
            assert delta.revision == journal.revision
    assert journal.since(0) is not None, "the whole state is always there"
    assert journal.since(journal.revision) is not None, "the newest revision is never too old"


@given(st.lists(CHANGES, max_size=20))
def test_the_state_is_what_was_written_last(changes: list[dict[str, Any]]) -> None:
    journal, expected = Journal(100), dict[str, Any]()
    for change in changes:
        before = journal.revision
        expected |= change
        wrote = journal.write(change)
        assert journal.entities == {id_: entity for id_, entity in expected.items() if entity is not None}
        assert journal.revision == before + wrote


def test_an_equal_state_is_no_new_revision() -> None:
    journal = Journal(10)
    assert journal.write({"a": {"n": 1}})
    assert not journal.write({"a": {"n": 1}, "never": None})
    assert journal.revision == 1


def test_the_journal_is_bounded_and_an_older_position_is_reported() -> None:
    journal = Journal(3)
    for number in range(10):
        journal.write({"a": {"n": number}})
    assert journal.since(3) is None
    assert journal.since(8) is not None
    assert journal.since(11) is None, "a revision that never was"
    assert journal.since(-1) is None


@given(st.dictionaries(st.text(max_size=5), st.fixed_dictionaries({"t": st.text()}), max_size=20), st.integers(1, 200))
def test_messages_are_small_and_complete_together(entities: dict[str, Any], most: int) -> None:
    delta = Delta(0, 7, entities, ("x", "y"))
    found: dict[str, Any] = {}
    parts = list(delta_messages("ab12", delta, most))
    for number, part in enumerate(parts):
        assert part.endswith(b"\n\n")
        lines = part.decode().split("\n")
        body = orjson.loads(next(line for line in lines if line.startswith("data: "))[6:])
        last = number == len(parts) - 1
        assert body["more"] is not last
        assert any(line.startswith("id: ") for line in lines) is last, "cut off before, a page has the former revision"
        assert (body["deleted"] == ["x", "y"]) is last
        assert len(orjson.dumps(body["set"])) <= most + 4 * len(body["set"]) or len(body["set"]) <= 1
        found |= body["set"]
    assert found == entities


@given(st.text())
def test_no_text_ends_a_message(text: str) -> None:
    try:
        part = message("event", {"text": text})
    except orjson.JSONEncodeError:
        return  # a lone surrogate, which no text from the API server has
    assert part.count(b"\n\n") == 1
    assert b"\r" not in part


def test_a_mark_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    assert parse_message_id(message_id("00ff", 12)) == ("00ff", 12)
    for text in ("", "x", "00ff", "00ff.", "00ff.x", "00ff.1.2", "00ff.-1", "gg.1", "0" * 99 + ".1"):
        assert parse_message_id(text) is None
