"""The number of permitted deletions, the time for which a breaker stays open, and the effect of closing it by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trellis.limits.breaker import (
    EXAMPLES,
    Admission,
    Closing,
    Deletion,
    Limits,
    Opening,
    State,
    close,
    decide,
    moment,
    paused_message,
    settled,
    unreadable,
)

LIMITS = Limits()
NOW = 1_000_000.0


def targets(number: int, first: int = 0) -> list[Deletion]:
    return [
        Deletion("nodes", f"node-{n}", f"uid-{n}", "taking labels away", "v1", "Node")
        for n in range(first, first + number)
    ]


def asking(state: State, number: int, population: int, now: float = NOW, first: int = 0) -> tuple[State, int]:
    """Return the next state, and how many of ``number`` objects may go."""
    state, answers = decide(settled(state, now, LIMITS), targets(number, first), population, now, LIMITS)
    return state, sum(answers)


@pytest.mark.parametrize(
    ("population", "allowed"),
    [
        *((population, 5) for population in range(1, 60)),
        (60, 6),
        (69, 6),
        (70, 7),
        (1000, 100),
        (5000, 500),
    ],
)
def test_five_may_go_or_ten_percent_and_the_next_one_opens_it(population: int, allowed: int) -> None:
    wanted = min(population, allowed)
    state, deleted = asking(State(), wanted, population)
    assert (deleted, state.opening) == (wanted, None)
    if population > allowed:
        state, deleted = asking(state, 1, population - wanted, first=wanted)
        assert deleted == 0
        assert state.opening is not None
        assert (state.opening.since, state.opening.until) == (NOW, NOW + 600)
        assert f"more than {allowed} of {population} nodes" in state.opening.reason


def test_a_mass_that_goes_one_by_one_is_measured_by_the_number_there_was_at_first() -> None:
    state, deleted = State(), 0
    for n in range(100):
        state, went = asking(state, 1, 100 - deleted, NOW + n * 0.1, first=n)
        deleted += went
    assert deleted == 10


def test_the_window_slides() -> None:
    state, _ = asking(State(), 3, 20)
    state, _ = asking(state, 2, 20, NOW + 30, first=3)
    assert asking(state, 1, 20, NOW + 59.9, first=5)[1] == 0
    state, deleted = asking(state, 3, 20, NOW + 60, first=5)  # the first three are a window ago
    assert deleted == 3
    assert asking(state, 1, 20, NOW + 60, first=8)[1] == 0


def test_one_object_tried_again_is_one_object() -> None:
    state = State()
    for n in range(20):
        state, deleted = asking(state, 1, 20, NOW + n)
        assert deleted == 1
    assert asking(state, 4, 20, NOW + 20, first=1)[1] == 4


def test_an_object_tried_again_counts_from_its_last_try() -> None:
    state, _ = asking(State(), 1, 20)
    state, _ = asking(state, 1, 20, NOW + 59)
    assert asking(state, 5, 20, NOW + 61, first=1)[1] == 4


def test_an_open_circuit_breaker_pauses_everything_for_ten_minutes_and_then_restarts() -> None:
    state, deleted = asking(State(), 30, 40)
    assert deleted == 5
    assert state.opening is not None
    assert len(state.opening.paused) == 25
    assert len(state.opening.examples) == EXAMPLES
    assert asking(state, 1, 40, NOW + 599, first=99)[1] == 0
    again, deleted = asking(state, 25, 35, NOW + 600, first=5)
    assert deleted == 5, "at most so many in each ten minutes"
    assert again.opening is not None
    assert again.opening.since == NOW + 600


def test_closing_releases_paused_deletions_and_nothing_else() -> None:
    state, _ = asking(State(), 30, 40)
    state = close(state, by="ada", now=NOW + 10, everything_for=None, limits=LIMITS)
    assert state.opening is None
    assert state.closing is not None
    assert (state.closing.by, state.closing.at) == ("ada", NOW + 10)
    state, deleted = asking(state, 25, 35, NOW + 11, first=5)
    assert (deleted, state.opening) == (25, None)
    # what is new has the usual limit: the first five are still within their 60 s
    state, deleted = asking(state, 1, 10, NOW + 12, first=90)
    assert deleted == 0
    assert asking(state, 25, 35, NOW + 13, first=5)[1] == 25, "a new opening does not take the leave back"
    assert asking(state, 25, 35, NOW + 611, first=5)[1] < 25, "the leave ends"


def test_closing_twice_keeps_the_first_leave() -> None:
    state, _ = asking(State(), 30, 40)
    for n in range(2):
        state = close(state, by="ada", now=NOW + n, everything_for=None, limits=LIMITS)
    assert asking(state, 25, 35, NOW + 2, first=5)[1] == 25


def test_everything_may_be_deleted_for_a_requested_time() -> None:
    state = close(State(), by="ada", now=NOW, everything_for=900, limits=LIMITS)
    state, deleted = asking(state, 500, 500, NOW + 899)
    assert (deleted, state.admissions) == (500, ())
    state, deleted = asking(state, 10, 20, NOW + 900, first=600)
    assert deleted == 5
    assert state.closing is not None
    assert state.closing.by == "ada"


def test_a_clock_that_was_ahead_holds_and_permits_no_longer_than_meant() -> None:
    ahead = NOW + 86_400
    state, _ = asking(State(), 30, 40, ahead)
    state = close(state, by="ada", now=ahead, everything_for=60, limits=LIMITS)
    state = replace(state, opening=Opening(ahead, ahead + 600, "why"))
    now = settled(state, NOW, LIMITS)
    assert now.opening is not None
    assert now.opening.until == NOW + 600
    assert now.closing is not None
    assert now.closing.until == NOW + 60
    assert [admission.at for admission in now.admissions] == [NOW]
    assert settled(now, NOW + 600, LIMITS).admissions == ()


def test_an_unreadable_record_is_open_for_ten_minutes() -> None:
    state = unreadable(NOW, LIMITS)
    assert asking(state, 1, 100)[1] == 0
    assert asking(state, 1, 100, NOW + 600)[1] == 1


def test_the_event_states_the_objects_the_end_the_reason_and_the_remedy() -> None:
    [target] = targets(1)
    message = paused_message(target, Opening(0, 600, "more than 5 of 40 nodes were to go within 60 s"), "node_watcher")
    assert moment(600) == "1970-01-01T00:10:00Z"
    for part in (
        "taking labels away",
        moment(600),
        "more than 5 of 40",
        "trellis circuit-breaker close node-watcher nodes",
    ):
        assert part in message


steps = st.tuples(
    st.one_of(st.sampled_from([0.0, 0.1, 1.0, 30.0, 59.9, 60.0, 60.1, 600.0]), st.floats(0, 700)),
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
    st.integers(1, 300),
)


def first_of_tries(went: list[tuple[float, str, int]], uid: str, last: float) -> float:
    """When an object was let through first that was tried again and again, each time within a minute."""
    for at, other, _ in reversed(went):
        if other == uid and last - 60 < at <= last:
            last = at
    return last


@given(st.lists(steps, max_size=40))
@example([(0.0, [1], 60), (59.9, [0, 2, 3, 4, 5, 1], 1), (59.9, [0, 1, 2, 3, 4, 5], 1), (1.0, [0], 1)])
def test_in_no_sixty_seconds_do_more_go_than_five_or_ten_percent(history: list[tuple[float, list[int], int]]) -> None:
    state, now = State(), NOW
    went: list[tuple[float, str, int]] = []
    for wait, wanted, population in history:
        now += wait
        requested = [target for n in wanted for target in targets(1, n)]
        state, answers = decide(settled(state, now, LIMITS), requested, population, now, LIMITS)
        went += [
            (now, target.uid, population) for target, permitted in zip(requested, answers, strict=True) if permitted
        ]
        assert state.opening is None or now < state.opening.until
    for end, _, _ in went:
        within = [item for item in went if end - 60 < item[0] <= end]
        # Each was let through, the first time, by the most there were in the minute before it.
        started = min(first_of_tries(went, uid, at) for at, uid, _ in within)
        most = max(population for at, _, population in went if started - 60 < at <= end)
        # An object that is tried again within a minute goes once, however often it is let through.
        assert len({uid for _, uid, _ in within}) <= LIMITS.allowed(most)


@given(st.lists(steps, max_size=10), st.floats(0, 2e6))
def test_settling_is_idempotent_and_only_forgets(history: list[tuple[float, list[int], int]], at: float) -> None:
    state, now = State(), NOW
    for wait, wanted, population in history:
        now += wait
        state, _ = decide(settled(state, now, LIMITS), targets(len(wanted)), population, now, LIMITS)
    state = close(state, by="x", now=now, everything_for=None, limits=LIMITS)
    once = settled(state, at, LIMITS)
    assert settled(once, at, LIMITS) == once
    assert {t for admission in once.admissions for t in admission.tokens} <= {
        t for admission in state.admissions for t in admission.tokens
    }


def test_a_state_is_a_value() -> None:
    state = State((Admission(1, 2, frozenset({"a"})),), closing=Closing(1, 2, "ada"))
    assert state == replace(state)
