"""Fields of untrusted JSON: a message for users."""

from __future__ import annotations

from trellis.v2.fields import ITEMS_KEPT, MESSAGE_KEPT, items, message, omitted


def test_a_message_that_is_cut_within_a_password_does_not_contain_its_begin() -> None:
    password = "s3cret" * 10
    for begin in range(MESSAGE_KEPT - 80, MESSAGE_KEPT):
        shown = message({"message": f"{'x' * begin} https://user:{password}@registry.test/"})
        assert "s3" not in shown
        assert len(shown) <= MESSAGE_KEPT


def test_a_message_of_another_type_is_empty() -> None:
    assert [message({"message": value}) for value in (None, 3, ["x"], {})] == ["", "", "", ""]


def test_entries_beyond_the_bound_are_counted() -> None:
    data = {"list": [{"name": str(number)} for number in range(ITEMS_KEPT + 3)], "text": "x" * 2 * ITEMS_KEPT}
    assert (len(items(data, "list")), omitted(data, "list")) == (ITEMS_KEPT, 3)
    assert [omitted(data, key) for key in ("text", "missing")] == [0, 0]
