"""A number of objects or a share of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from trellis.provisioning.int_or_percent import CountOrPercent


class Rollout(BaseModel):
    max_update: CountOrPercent


@pytest.mark.parametrize(
    ("text", "total", "expected"),
    [
        ("5", 100, 5),
        (5, 100, 5),
        (" 7 ", 3, 7),
        ("10%", 100, 10),
        ("10%", 19, 1),
        ("10%", 20, 2),
        ("1%", 3, 1),
        ("33%", 10, 3),
        ("100%", 7, 7),
        ("50%", 0, 1),
    ],
)
def test_it_resolves_to_a_number_of_objects(text: object, total: int, expected: int) -> None:
    assert CountOrPercent.parse(text).resolve(total) == expected


@pytest.mark.parametrize(
    "value",
    ["0", 0, "0%", "-1", -1, "101%", "12x", "", "%", "1.5", "5 %", "+5", "٥", True, 1.0, None, 2**31, [5]],
    ids=repr,
)
def test_text_that_is_neither_count_nor_percentage_is_refused_with_the_valid_form(value: object) -> None:
    with pytest.raises(ValueError, match=r"^needs "):
        CountOrPercent.parse(value)


@given(st.integers(1, 100), st.integers(0, 10_000))
def test_a_share_moves_at_least_one_object_and_never_more_than_the_share(percent: int, total: int) -> None:
    size = CountOrPercent(percent, is_percent=True).resolve(total)
    assert size >= 1
    assert size == 1 or size * 100 <= percent * total


@given(
    st.one_of(
        st.builds(CountOrPercent, st.integers(1, 2**31 - 1)),
        st.builds(CountOrPercent, st.integers(1, 100), st.just(True)),
    )
)
def test_its_text_and_its_json_are_read_back_as_the_same(value: CountOrPercent) -> None:
    assert CountOrPercent.parse(str(value)) == value
    assert Rollout.model_validate_json(Rollout(max_update=value).model_dump_json()).max_update == value


def test_its_json_is_kubernetes_int_or_string() -> None:
    adapter = TypeAdapter(CountOrPercent)
    assert adapter.dump_json(CountOrPercent(5)) == b"5"
    assert adapter.dump_json(CountOrPercent(5, is_percent=True)) == b'"5%"'
    assert adapter.json_schema() == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
