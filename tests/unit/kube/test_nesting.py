"""Answers are read however deep something in them is nested, and what is cut is not taken for the whole."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.kube.nesting import MOST_LEVELS, cut, parse

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(alphabet='a"\\[]{}é'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='k"\\[]{}'), inner, max_size=4),
    max_leaves=20,
)


def nested(levels: int, last: bytes = b"1") -> bytes:
    return b'{"a":' * levels + last + b"}" * levels


async def test_an_object_nested_too_deep_does_not_affect_the_others() -> None:
    deep = b'{"metadata":{"name":"deep"},"spec":%b}' % nested(9000)
    body = b'{"items":[%b,{"metadata":{"name":"plain"},"spec":{"say":"}]\\"["}},%b]}' % (deep, deep)
    found = await parse(body)
    assert [item["metadata"]["name"] for item in found["items"]] == ["deep", "plain", "deep"]
    assert found["items"][1]["spec"] == {"say": '}]"['}


async def test_a_truncated_object_cannot_be_written() -> None:
    found = await parse(nested(2000))
    with pytest.raises(TypeError):
        orjson.dumps(found)


async def test_permitted_nesting_is_read_unchanged() -> None:
    assert orjson.loads(nested(600)) == await parse(nested(600))


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":1', nested(2000)[:-1], b"[" * 5000])
async def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        await parse(body)


@given(value=JSON, before=st.integers(0, MOST_LEVELS - 10))
def test_only_values_nested_too_deep_are_cut(value: object, before: int) -> None:
    body = b"[" * before + orjson.dumps(value) + b"]" * before
    deep = b'{"whole":%b,"deep":%b}' % (body, nested(MOST_LEVELS + 5, body))
    found = cut(deep)
    assert found.startswith(b'{"whole":' + body)
    assert found.endswith(nested(MOST_LEVELS - 1, b"null") + b"}")
