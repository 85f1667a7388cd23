"""A small share of what `make fuzz` runs, and unexpected texts."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secrets_backend.domain.protocol import open_request
from secrets_backend.domain.refusals import Refusal
from support.secrets.opened_requests import KEYS, accepted, message, refusal
from support.secrets.secret_cases import verdict
from support.secrets.secret_mutations import KINDS, case
from support.secrets.secret_oracle import RequestedSecret, judge
from support.secrets.secret_requests import GOOD, NOW, asking, changed, sealed

LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
APPLICATION = "context.application"
PLACES = ["key", "field", "version", "context", "context.entity_jwt", f"{APPLICATION}.policy", APPLICATION]
CASES = 3_000


@pytest.fixture(scope="module")
def outcomes() -> set[str]:
    """Return the results of the first cases; each was compared with the second reading of the protocol."""
    return {verdict(seed) for seed in range(CASES)}


@pytest.mark.thorough
def test_a_mutated_request_is_read_as_a_second_reading_of_the_protocol_reads_it(outcomes: set[str]) -> None:
    """And every kind of case is accepted at times: else the generator makes noise, which the first check stops."""
    assert {f"{kind}: accepted" for kind in [*KINDS, "header"]} <= outcomes


def test_every_error_of_a_request_is_seen(outcomes: set[str]) -> None:
    first = {"InvalidHeaders", "DecryptionError", "InvalidPayload", "InvalidEntityJWT", "InvalidHostJWT"}
    last = {"PolicyError", "Other", "UpstreamError", "SecretNotFound", "accepted"}
    assert {outcome.split(": ")[1] for outcome in outcomes} == first | last


def test_a_case_is_the_same_for_the_same_seed_but_for_other_nonces() -> None:
    assert [case(seed).text for seed in range(50)] == [case(seed).text for seed in range(50)]


def _same(text: bytes) -> None:
    wanted = judge(text, NOW)
    if isinstance(wanted, RequestedSecret):
        request = accepted(message(text))
        assert (request.secret, request.field) == (wanted.secret, wanted.field)
    else:
        assert refusal(message(text)).error == wanted


@pytest.mark.thorough
@given(place=st.sampled_from(PLACES), value=JSON)
@settings(max_examples=300, deadline=None)
def test_any_json_in_any_place_is_read_alike(place: str, value: Any) -> None:
    _same(json.dumps(changed(GOOD, {place: value})).encode())


@given(value=JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_as_a_policy_is_read_alike(value: Any) -> None:
    _same(json.dumps(changed(GOOD, {f"{APPLICATION}.policy": json.dumps(value)})).encode())


@given(text=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_in_a_box_are_read_alike(text: bytes) -> None:
    _same(text)


@given(payload=st.binary(max_size=200), name=st.text(max_size=60), value=st.text(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_unsealed_message_is_refused(payload: bytes, name: str, value: str) -> None:
    for headers in ({name: value}, {"WasmCloud-Host-Xkey": value}, None):
        with pytest.raises(Refusal):
            open_request(headers, payload, KEYS, NOW)
        with pytest.raises(Refusal):
            open_request(headers, sealed(asking()), KEYS, NOW)
