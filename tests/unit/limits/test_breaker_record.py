"""A breaker's state as text: what was written is read, anything else is recognised."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis import names
from trellis.limits.breaker import Admission, Closing, Opening, State
from trellis.limits.breaker_record import decode, encode, make_breakers, read_breakers

times = st.floats(0, 1e9)
tokens = st.frozensets(st.text("0123456789abcdef", min_size=10, max_size=10), max_size=5)
spans = st.tuples(times, st.floats(0, 600_000)).map(lambda pair: (pair[0], pair[0] + pair[1]))
states = st.builds(
    State,
    st.lists(st.builds(Admission, times, st.integers(0, 10_000), tokens), max_size=4).map(tuple),
    st.none()
    | st.builds(
        lambda span, reason, paused, some: Opening(*span, reason, paused, tuple(some)),  # type: ignore[call-arg]
        spans, st.text(), tokens, st.lists(st.text(), max_size=3),
    ),
    st.none()
    | st.builds(
        lambda span, by, everything, permitted: Closing(*span, by, everything, permitted),  # type: ignore[call-arg]
        spans, st.text(), st.booleans(), tokens,
    ),
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(states)
def test_an_encoded_state_decodes_to_the_same(state: State) -> None:
    assert decode(encode(state)) == state


@given(st.text() | json_values.map(json.dumps))
def test_garbage_is_none_and_never_an_error(text: str) -> None:
    assert decode(text) is None


@given(states, st.sampled_from(["admissions", "open", "closed"]), json_values)
def test_a_broken_part_is_never_an_error(state: State, part: str, value: object) -> None:
    found = decode(json.dumps(json.loads(encode(state)) | {part: value}))
    assert found is None or isinstance(found, State)


@pytest.mark.parametrize(
    "text",
    [
        '{"admissions":[],"open":{"since":0,"until":1e9,"reason":"","paused":[],"examples":[]}}',
        '{"admissions":[],"open":{"since":5,"until":4,"reason":"","paused":[],"examples":[]}}',
        '{"admissions":[{"at":NaN,"population":1,"objects":[]}]}',
        '{"admissions":[{"at":1e300,"population":1,"objects":[]}]}',
        '{"admissions":[{"at":1,"population":-1,"objects":[]}]}',
        '{"admissions":[{"at":1,"population":1,"objects":"abc"}]}',
        "[" * 100_000,
        "{}",
    ],
)  # fmt: skip
def test_times_and_numbers_that_make_no_sense_are_garbage(text: str) -> None:
    assert decode(text) is None


def test_a_configmap_holds_a_key_a_kind_and_is_found_by_its_label() -> None:
    written = {"nodes": State((Admission(1.5, 40, frozenset({"abc"})),)), "jobs": State()}
    manifest = make_breakers("node_watcher", "trellis-system", written, "7")
    assert manifest["metadata"]["name"] == "trellis-circuit-breaker-node-watcher"
    assert manifest["metadata"]["labels"][names.LABEL_CIRCUIT_BREAKER] == "node-watcher"
    assert manifest["metadata"]["resourceVersion"] == "7"
    assert read_breakers(manifest) == written
    assert read_breakers({"data": {"nodes": "oops"}}) == {"nodes": None}
    assert read_breakers({"data": None}) == {}


def test_ten_thousand_paused_objects_fit() -> None:
    paused = frozenset(f"{n:010x}" for n in range(10_000))
    state = State(opening=Opening(0, 600, "why", paused), closing=Closing(0, 600, "ada", permitted=paused))
    assert len(encode(state)) < 300_000
