"""What waits for one controller, and when its turn comes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controller_host.scheduler.turns import Allowance, Places, WorkQueue
from trellis.limits.backoff import Backoff
from trellis.limits.token_bucket import TokenBucket


def an_agenda(jitter: float = 1.0) -> WorkQueue[str]:
    return WorkQueue(Backoff(random=lambda: jitter))


def keys(agenda: WorkQueue[str], now: float, most: int = 10) -> list[str]:
    return [turn.key for turn in agenda.take(now, most)]


def test_a_key_that_changes_often_has_one_turn() -> None:
    agenda = an_agenda()
    for now in range(5):
        agenda.changed("a", now)
    assert [(turn.key, turn.since) for turn in agenda.take(9, 10)] == [("a", 0)]
    assert agenda.take(9, 10) == []


def test_a_key_that_changes_while_it_is_worked_on_has_another_turn() -> None:
    agenda = an_agenda()
    agenda.changed("a", 0)
    agenda.take(0, 1)
    agenda.changed("a", 1)
    agenda.done("a", 2)
    assert keys(agenda, 2) == ["a"]


def test_a_failing_key_waits_longer_each_time_and_its_neighbour_does_not() -> None:
    agenda = an_agenda()
    delays = []
    now = 0.0
    agenda.changed("bad", now)
    for attempt in range(12):
        [turn] = agenda.take(now, 10)
        assert turn.attempt == attempt
        delays.append(agenda.failed("bad", now))
        agenda.changed("good", now)
        assert keys(agenda, now) == ["good"]
        agenda.done("good", now)
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_key_that_is_refused_waits_no_longer_than_it_may() -> None:
    agenda = an_agenda()
    now, delays = 0.0, []
    agenda.changed("a", now)
    for _ in range(8):
        agenda.take(now, 1)
        delays.append(agenda.failed("a", now, most=15.0))
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 15, 15, 15, 15]
    agenda.take(now, 1)
    assert agenda.failed("a", now) == 256, "what fails for another reason waits as always"


def test_a_success_of_a_refused_key_has_the_other_refused_keys_tried() -> None:
    agenda = an_agenda()
    for key in ("a", "b", "broken"):
        agenda.changed(key, 0)
    agenda.take(0, 3)
    for key in ("a", "b"):
        agenda.failed(key, 0, most=15.0)
    agenda.failed("broken", 0)
    assert agenda.refused == 2
    agenda.changed("a", 0.5)
    assert keys(agenda, 0.5) == ["a"]
    agenda.done("a", 0.6)
    assert keys(agenda, 0.6) == ["b"]
    agenda.done("b", 0.7)
    assert (agenda.refused, keys(agenda, 0.7)) == (0, [])


def test_a_success_ends_a_row_of_failures() -> None:
    agenda = an_agenda()
    agenda.changed("a", 0)
    agenda.take(0, 1)
    agenda.failed("a", 0)
    assert [turn.attempt for turn in agenda.take(1, 1)] == [1]
    agenda.done("a", 1)
    agenda.changed("a", 1)
    assert [turn.attempt for turn in agenda.take(1, 1)] == [0]


def test_a_change_ends_the_wait_of_a_key_that_failed_and_keeps_the_count() -> None:
    agenda = an_agenda()
    agenda.changed("a", 0)
    agenda.take(0, 1)
    agenda.failed("a", 0)
    agenda.changed("a", 0.1)
    assert [(turn.key, turn.attempt) for turn in agenda.take(0.1, 1)] == [("a", 1)]
    assert agenda.take(99, 1) == []


def test_a_requeue_comes_at_its_time_and_of_two_the_earlier_counts() -> None:
    agenda = an_agenda()
    agenda.done("a", 0, again=30)
    agenda.postpone("a", 0, 60)
    assert keys(agenda, 29.9) == []
    assert agenda.wait(20) == 10
    assert keys(agenda, 30) == ["a"]
    assert keys(agenda, 60) == []


def test_a_changed_spec_gives_what_failed_its_turn_and_leaves_what_asked_for_a_time() -> None:
    agenda = an_agenda()
    for key in ("failed", "timed"):
        agenda.changed(key, 0)
    agenda.take(0, 2)
    agenda.failed("failed", 0)
    agenda.done("timed", 0, again=100)
    agenda.forgive(0.5)
    assert [(turn.key, turn.attempt) for turn in agenda.take(0.5, 9)] == [("failed", 0)]
    assert agenda.wait(0.5) == 99.5


def test_turns_that_were_not_used_are_the_next_ones_in_their_order() -> None:
    agenda = an_agenda()
    for now, key in enumerate("abc"):
        agenda.changed(key, now)
    turns = agenda.take(3, 2)
    agenda.put_back(turns)
    again = agenda.take(3, 9)
    assert again[:2] == turns
    assert again[2].key == "c"


@given(st.lists(st.tuples(st.sampled_from(["change", "take", "fail", "done", "later"]), st.integers(0, 3))))
def test_no_key_that_changed_is_ever_lost(steps: list[tuple[str, int]]) -> None:
    agenda = an_agenda()
    owed: set[int] = set()
    for now, (step, key) in enumerate(steps):
        if step == "change":
            agenda.changed(str(key), now)
            owed.add(key)
        elif step == "later":
            agenda.done(str(key), now, again=2)
            owed.add(key)
        else:
            for turn in agenda.take(now, 1):
                owed.discard(int(turn.key))
                if step == "fail":
                    agenda.failed(turn.key, now)
                    owed.add(int(turn.key))
    assert {int(key) for key in keys(agenda, 10_000)} == owed


def test_a_thousand_moves_of_a_timer_keep_no_thousand_entries() -> None:
    agenda = an_agenda()
    for step in range(1000):
        agenda.postpone("a", 0, 1000 - step)
    assert len(agenda._heap) < 50


def test_an_owner_holds_no_more_places_than_are_free_beside() -> None:
    places = Places[int](128)
    taken = sum(places.enter("hostile", number) for number in range(200))
    assert taken == 64
    assert sum(places.enter("second", 1000 + number) for number in range(200)) == 32
    assert places.enter("good", 5000)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=200), st.integers(1, 12))
def test_whoever_comes_next_finds_a_place_and_nobody_who_may_have_one_waits(
    steps: list[tuple[str, bool]], total: int
) -> None:
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


def test_those_who_wait_are_let_in_by_turns() -> None:
    places = Places[str](4)
    assert [places.enter("a", f"a{number}") for number in range(4)] == [True, True, False, False]
    assert [places.enter("b", f"b{number}") for number in range(3)] == [True, False, False]
    assert not places.enter("a", "a2"), "a key waits once"
    assert places.leave("a") == ["a2"]
    assert places.leave("b") == ["b1"]
    assert places.leave("a") == ["a3"]
    assert places.leave("a") == ["b2"]


def test_a_key_that_is_gone_holds_no_place() -> None:
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


def test_what_is_too_much_is_counted_and_said_with_the_next() -> None:
    allowance = Allowance(TokenBucket(1.0, 2.0))
    assert [allowance.take(0.0), allowance.take(0.0), allowance.take(0.0), allowance.take(0.5)] == [0, 0, None, None]
    assert allowance.take(1.5) == 2
    assert allowance.take(2.5) == 0
    assert allowance.take(9.0, 3.0) is None, "more than there ever is"
