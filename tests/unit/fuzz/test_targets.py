"""Each parser that meets the outside, a hundred cases of it; hypothesis draws others, and makes them small."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from fuzz.catalogue import TARGETS
from fuzz.limits import TooLong, TooMuch, bounded
from fuzz.target import Target, shown

CASES = 100
_BEYOND = range(CASES, 20_000)
"""Where the rarer outcomes are looked for, which a target must have."""

all_targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@all_targets
def test_no_case_is_answered_wrongly_and_the_generator_makes_no_noise(target: Target[Any]) -> None:
    outcomes = Counter(target.verdict(number) for number in range(CASES))
    missing = set(target.must - outcomes.keys())
    for number in _BEYOND:
        if not missing:
            break
        missing.discard(target.verdict(number))
    assert not missing


@all_targets
@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_inputs_drawn_by_hypothesis_are_answered_too(target: Target[Any], rng: random.Random) -> None:
    case = target.make(rng)
    note(shown(case))
    target.judge(case)


@all_targets
def test_a_case_is_the_same_for_the_same_number(target: Target[Any]) -> None:
    if target.name == "secret-requests":
        pytest.skip("what is in a box is the same, its nonce is not: tests/unit/secrets_backend/test_fuzz.py")
    assert [shown(target.case(number)) for number in range(5)] == [shown(target.case(number)) for number in range(5)]


def compute() -> None:
    while True:
        pass


def test_a_case_that_computes_without_end_is_ended() -> None:
    with pytest.raises(TooLong), bounded(0.05, 64):
        compute()


def test_a_case_that_takes_too_much_memory_is_found() -> None:
    with pytest.raises(TooMuch, match="MiB"), bounded(5, 16):
        bytearray(64 << 20)
