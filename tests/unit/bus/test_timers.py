from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.suite.timers import FakeTimers
from trellis.bus.consume.timers import TimerHeap


def test_of_several_delays_of_a_key_only_the_shortest_counts() -> None:
    timers, due = FakeTimers(), list[str]()
    heap = TimerHeap[str](timers, due.append)
    for delay in (30, 5, 60):
        heap.set("node", delay)
    timers.advance(4.9)
    assert due == []
    timers.advance(0.2)
    assert due == ["node"]
    timers.advance(100)
    assert due == ["node"]
    assert len(heap) == 0


def test_thousands_of_keys_use_one_alarm() -> None:
    timers, due = FakeTimers(), list[int]()
    heap = TimerHeap[int](timers, due.append)
    for key in range(5000):
        heap.set(key, 5000 - key)
    assert len(timers.pending) == 1
    timers.advance(5000)
    assert due == list(reversed(range(5000)))


def test_a_discarded_key_is_not_called_and_leaves_no_alarm() -> None:
    timers, due = FakeTimers(), list[str]()
    heap = TimerHeap[str](timers, due.append)
    heap.set("node", 5)
    heap.discard("node")
    assert timers.pending == []
    timers.advance(10)
    assert due == []


def test_timers_moved_or_removed_ten_thousand_times_leave_nothing_behind() -> None:
    timers, due = FakeTimers(), list[str]()
    heap = TimerHeap[str](timers, due.append)
    for round_ in range(10_000):
        heap.set("moved", 20_000 - round_)
        heap.set("taken away", 5000)
        heap.discard("taken away")
    assert len(heap._heap) < 200
    timers.advance(20_000)
    assert due == ["moved"]


def test_a_hundred_thousand_timers_due_at_once_give_the_event_loop_its_turn_in_between() -> None:
    timers, due, turns = FakeTimers(), list[int](), list[int]()
    heap = TimerHeap[int](timers, due.append)
    for key in range(100_000):
        heap.set(key, 1)
    timers.time += 60  # the process was paused
    while len(heap):
        before = len(due)
        timers.ring()
        turns.append(len(due) - before)
    assert max(turns) <= 1000
    assert sorted(due) == list(range(100_000))


def test_a_key_may_be_set_again_while_it_is_called() -> None:
    timers, due = FakeTimers(), list[float]()

    def again(key: str) -> None:
        due.append(timers.now())
        heap.set(key, 2)

    heap = TimerHeap[str](timers, again)
    heap.set("node", 1)
    timers.advance(6)
    assert due == [1001, 1003, 1005]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12))
def test_every_key_is_called_at_its_earliest_time(settings: list[tuple[str, int]]) -> None:
    timers, due = FakeTimers(), dict[str, float]()
    heap = TimerHeap[str](timers, lambda key: due.__setitem__(key, timers.now() - 1000))
    for key, delay in settings:
        heap.set(key, delay)
    timers.advance(20)
    assert due == {key: min(delay for other, delay in settings if other == key) for key, _ in settings}
