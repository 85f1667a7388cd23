"""Fields of untrusted JSON: a message for users."""

from __future__ import annotations

from trellis.v2.fields import MESSAGE_KEPT, message


def test_a_message_that_is_cut_within_a_password_does_not_contain_its_begin() -> None:
    password = "s3cret" * 10
    for begin in range(MESSAGE_KEPT - 80, MESSAGE_KEPT):
        shown = message({"message": f"{'x' * begin} https://user:{password}@registry.test/"})
        assert "s3" not in shown
        assert len(shown) <= MESSAGE_KEPT


def test_a_message_of_another_type_is_empty() -> None:
    assert [message({"message": value}) for value in (None, 3, ["x"], {})] == ["", "", "", ""]
