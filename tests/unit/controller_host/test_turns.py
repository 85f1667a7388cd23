"""The queue of one controller and the time of its turn."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controller_host.scheduler.turns import Allowance, Places, WorkQueue
from trellis.limits.backoff import Backoff
from trellis.limits.token_bucket import TokenBucket


def a_work_queue(jitter: float = 1.0) -> WorkQueue[str]:
    return WorkQueue(Backoff(random=lambda: jitter))


def keys(work_queue: WorkQueue[str], now: float, most: int = 10) -> list[str]:
    return [turn.key for turn in work_queue.take(now, most)]


def test_a_key_that_changes_often_has_one_turn() -> None:
    work_queue = a_work_queue()
    for now in range(5):
        work_queue.changed("a", now)
    assert [(turn.key, turn.since) for turn in work_queue.take(9, 10)] == [("a", 0)]
    assert work_queue.take(9, 10) == []


def test_a_key_that_changes_while_it_is_worked_on_has_another_turn() -> None:
    work_queue = a_work_queue()
    work_queue.changed("a", 0)
    work_queue.take(0, 1)
    work_queue.changed("a", 1)
    work_queue.done("a", 2)
    assert keys(work_queue, 2) == ["a"]


def test_a_failing_key_waits_longer_each_time_and_its_neighbour_does_not() -> None:
    work_queue = a_work_queue()
    delays = []
    now = 0.0
    work_queue.changed("bad", now)
    for attempt in range(12):
        [turn] = work_queue.take(now, 10)
        assert turn.attempt == attempt
        delays.append(work_queue.failed("bad", now))
        work_queue.changed("good", now)
        assert keys(work_queue, now) == ["good"]
        work_queue.done("good", now)
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_key_that_is_refused_waits_no_longer_than_it_may() -> None:
    work_queue = a_work_queue()
    now, delays = 0.0, []
    work_queue.changed("a", now)
    for _ in range(8):
        work_queue.take(now, 1)
        delays.append(work_queue.failed("a", now, most=15.0))
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 15, 15, 15, 15]
    work_queue.take(now, 1)
    assert work_queue.failed("a", now) == 256, "what fails for another reason waits as always"


def test_a_success_of_a_refused_key_has_the_other_refused_keys_tried() -> None:
    work_queue = a_work_queue()
    for key in ("a", "b", "broken"):
        work_queue.changed(key, 0)
    work_queue.take(0, 3)
    for key in ("a", "b"):
        work_queue.failed(key, 0, most=15.0)
    work_queue.failed("broken", 0)
    assert work_queue.refused == 2
    work_queue.changed("a", 0.5)
    assert keys(work_queue, 0.5) == ["a"]
    work_queue.done("a", 0.6)
    assert keys(work_queue, 0.6) == ["b"]
    work_queue.done("b", 0.7)
    assert (work_queue.refused, keys(work_queue, 0.7)) == (0, [])


def test_a_success_ends_a_row_of_failures() -> None:
    work_queue = a_work_queue()
    work_queue.changed("a", 0)
    work_queue.take(0, 1)
    work_queue.failed("a", 0)
    assert [turn.attempt for turn in work_queue.take(1, 1)] == [1]
    work_queue.done("a", 1)
    work_queue.changed("a", 1)
    assert [turn.attempt for turn in work_queue.take(1, 1)] == [0]


def test_a_change_ends_the_wait_of_a_key_that_failed_and_keeps_the_count() -> None:
    work_queue = a_work_queue()
    work_queue.changed("a", 0)
    work_queue.take(0, 1)
    work_queue.failed("a", 0)
    work_queue.changed("a", 0.1)
    assert [(turn.key, turn.attempt) for turn in work_queue.take(0.1, 1)] == [("a", 1)]
    assert work_queue.take(99, 1) == []


def test_a_requeue_comes_at_its_time_and_of_two_the_earlier_counts() -> None:
    work_queue = a_work_queue()
    work_queue.done("a", 0, again=30)
    work_queue.postpone("a", 0, 60)
    assert keys(work_queue, 29.9) == []
    assert work_queue.wait(20) == 10
    assert keys(work_queue, 30) == ["a"]
    assert keys(work_queue, 60) == []


def test_a_changed_spec_retries_failed_keys_and_keeps_scheduled_ones() -> None:
    work_queue = a_work_queue()
    for key in ("failed", "timed"):
        work_queue.changed(key, 0)
    work_queue.take(0, 2)
    work_queue.failed("failed", 0)
    work_queue.done("timed", 0, again=100)
    work_queue.retry_now(0.5)
    assert [(turn.key, turn.attempt) for turn in work_queue.take(0.5, 9)] == [("failed", 0)]
    assert work_queue.wait(0.5) == 99.5


def test_turns_that_were_not_used_are_the_next_ones_in_their_order() -> None:
    work_queue = a_work_queue()
    for now, key in enumerate("abc"):
        work_queue.changed(key, now)
    turns = work_queue.take(3, 2)
    work_queue.put_back(turns)
    again = work_queue.take(3, 9)
    assert again[:2] == turns
    assert again[2].key == "c"


@given(st.lists(st.tuples(st.sampled_from(["change", "take", "fail", "done", "later"]), st.integers(0, 3))))
def test_no_key_that_changed_is_ever_lost(steps: list[tuple[str, int]]) -> None:
    work_queue = a_work_queue()
    owed: set[int] = set()
    for now, (step, key) in enumerate(steps):
        if step == "change":
            work_queue.changed(str(key), now)
            owed.add(key)
        elif step == "later":
            work_queue.done(str(key), now, again=2)
            owed.add(key)
        else:
            for turn in work_queue.take(now, 1):
                owed.discard(int(turn.key))
                if step == "fail":
                    work_queue.failed(turn.key, now)
                    owed.add(int(turn.key))
    assert {int(key) for key in keys(work_queue, 10_000)} == owed


def test_a_thousand_moves_of_a_timer_keep_no_thousand_entries() -> None:
    work_queue = a_work_queue()
    for step in range(1000):
        work_queue.postpone("a", 0, 1000 - step)
    assert len(work_queue._heap) < 50


def test_an_owner_holds_no_more_places_than_are_free_beside() -> None:
    places = Places[int](128)
    taken = sum(places.enter("hostile", number) for number in range(200))
    assert taken == 64
    assert sum(places.enter("second", 1000 + number) for number in range(200)) == 32
    assert places.enter("good", 5000)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=200), st.integers(1, 12))
def test_an_eligible_waiter_gets_a_free_slot(steps: list[tuple[str, bool]], total: int) -> None:
    places, inside, waiting = Places[int](total), dict[int, str](), dict[int, str]()
    for number, (owner, leaves) in enumerate(steps):
        own = [key for key, whose in inside.items() if whose == owner]
        if leaves and own:
            del inside[own[0]]
            for key in places.leave(owner):
                inside[key] = waiting.pop(key)
                assert places.enter(inside[key], key), "what it was told it has"
        elif places.enter(owner, number):
            inside[number] = owner
        else:
            waiting[number] = owner
        held = Counter(inside.values())
        free = total - len(inside)
        assert free >= 0
        assert not [owner for owner in waiting.values() if held[owner] < free]


def test_waiters_are_admitted_by_turns() -> None:
    places = Places[str](4)
    assert [places.enter("a", f"a{number}") for number in range(4)] == [True, True, False, False]
    assert [places.enter("b", f"b{number}") for number in range(3)] == [True, False, False]
    assert not places.enter("a", "a2"), "a key waits once"
    assert places.leave("a") == ["a2"]
    assert places.leave("b") == ["b1"]
    assert places.leave("a") == ["a3"]
    assert places.leave("a") == ["b2"]


def test_a_deleted_key_holds_no_slot() -> None:
    places = Places[str](2)
    assert places.enter("a", "a0")
    assert not places.enter("a", "a1")
    assert not places.enter("a", "a2")
    assert places.drop("a", "a1") == []
    assert places.leave("a") == ["a2"]
    assert places.drop("a", "a2") == []
    assert places.enter("b", "b0")
    assert not places.enter("b", "b1")
    assert places.leave("b") == ["b1"]


def test_excess_calls_are_counted_and_reported_with_the_next() -> None:
    allowance = Allowance(TokenBucket(1.0, 2.0))
    assert [allowance.take(0.0), allowance.take(0.0), allowance.take(0.0), allowance.take(0.5)] == [0, 0, None, None]
    assert allowance.take(1.5) == 2
    assert allowance.take(2.5) == 0
    assert allowance.take(9.0, 3.0) is None, "more than there ever is"
