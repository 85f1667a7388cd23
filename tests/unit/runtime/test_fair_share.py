"""Places that tenants share: no owner holds more than their share, and no waiting owner is passed over."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from trellis.runtime.fair_share import FairShare


class Work:
    """Owners who each want to hold a place until they are released."""

    def __init__(self, total: int, each: int) -> None:
        self.shares = FairShare(total, each)
        self.began: list[str] = []
        self.tasks: dict[str, list[asyncio.Task[None]]] = {}
        self.ends: dict[str, list[asyncio.Event]] = {}

    async def add(self, owner: str, times: int = 1) -> None:
        for _ in range(times):
            end = asyncio.Event()
            self.ends.setdefault(owner, []).append(end)
            self.tasks.setdefault(owner, []).append(asyncio.create_task(self._hold(owner, end)))
        await settle()

    async def _hold(self, owner: str, end: asyncio.Event) -> None:
        async with self.shares.hold(owner):
            self.began.append(owner)
            await end.wait()

    async def end(self, owner: str, at: int = 0) -> None:
        self.ends[owner][at].set()
        await settle()

    async def stop(self) -> None:
        tasks = [task for line in self.tasks.values() for task in line]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_greedy_user_gets_their_share_and_the_others_the_rest() -> None:
    work = Work(total=4, each=2)
    await work.add("greedy", 10)
    await work.add("a", 2)
    assert work.began == ["greedy", "greedy", "a", "a"]
    assert work.shares.waiting == 8
    await work.stop()
    assert (work.shares.held("greedy"), work.shares.held("a"), work.shares.waiting) == (0, 0, 0)


async def test_waiters_are_served_by_turns_for_any_queue_behind_one_of_them() -> None:
    work = Work(total=1, each=1)
    await work.add("greedy", 5)
    await work.add("a")
    await work.add("b")
    await work.end("greedy", 0)
    await work.end("greedy", 1)
    await work.end("a")
    await work.end("b")
    assert work.began == ["greedy", "greedy", "a", "b", "greedy"]
    await work.stop()


async def test_a_freed_slot_goes_to_a_user_below_their_share() -> None:
    work = Work(total=3, each=2)
    await work.add("greedy", 4)
    await work.add("a", 1)
    await work.add("b", 1)
    assert work.began == ["greedy", "greedy", "a"]
    await work.end("a")
    assert work.began[-1] == "b", "greedy waits longer, and has his share"
    await work.end("greedy")
    assert work.began[-1] == "greedy"
    await work.stop()


async def test_a_cancelled_waiter_delays_no_other() -> None:
    work = Work(total=1, each=1)
    await work.add("a")
    await work.add("b")
    await work.add("c")
    work.tasks["b"][0].cancel()
    await work.end("a")
    assert work.began == ["a", "c"]
    await work.stop()


async def test_a_slot_given_to_a_cancelled_waiter_is_passed_on() -> None:
    work = Work(total=1, each=1)
    await work.add("a")
    await work.add("b")
    await work.add("c")
    work.ends["a"][0].set()
    await asyncio.sleep(0)
    work.tasks["b"][0].cancel()
    await settle()
    assert work.began[-1] == "c"
    await work.stop()


@pytest.mark.parametrize("seed", range(20))
async def test_no_share_is_passed_and_no_place_is_lost(seed: int) -> None:
    chance, shares = random.Random(seed), FairShare(5, 2)
    now: Counter[str] = Counter()
    done: Counter[str] = Counter()

    async def one(owner: str) -> None:
        async with shares.hold(owner):
            now[owner] += 1
            assert now[owner] <= 2
            assert now.total() <= 5
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                now[owner] -= 1
        done[owner] += 1

    async def called_away(task: asyncio.Task[None]) -> None:
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    tasks = [asyncio.create_task(one(f"o{chance.randrange(6)}")) for _ in range(200)]
    unavailable = [called_away(task) for task in tasks if chance.random() < 0.3]
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, *unavailable, return_exceptions=True)
    assert (now.total(), shares.waiting) == (0, 0)
    assert all(not shares.held(f"o{number}") for number in range(6))
    assert done.total() >= 200 - len(unavailable)
    assert all(task.cancelled() or task.exception() is None for task in tasks)


async def test_a_place_that_is_free_is_had_at_once_and_one_that_is_not_is_not() -> None:
    shares = FairShare(2, 1)
    assert shares.take_free("a")
    assert not shares.take_free("a")  # more than its share
    assert shares.take_free("b")
    assert not shares.take_free("c")  # none is left
    shares.give_back("a")
    assert shares.take_free("c")
