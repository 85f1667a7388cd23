"""Patience counts the seconds that a process had a processor, or wanted none."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import pytest

from chaos import waiting
from chaos.waiting import NoProcessorError, Patience, done_within, none_of, waited_of


class Machine:
    """A clock, and how long each process has waited for a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.waited = {1: 5.0, 2: 50.0}
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(waiting, "waited_of", lambda pid: self.waited[pid])

    def patience(self) -> Patience:
        made = Patience(lambda: self.waited, pause=0.0, rest=0.0)
        made.look()
        return made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_all_seconds_count_for_a_process_that_waits_for_no_other(machine: Machine) -> None:
    patience = machine.patience()
    machine.now += 10
    assert patience.look() == pytest.approx(10)


def test_seconds_in_which_one_waits_for_a_processor_do_not_count(machine: Machine) -> None:
    patience = machine.patience()
    machine.now += 10
    machine.waited = {1: 7.0, 2: 58.0}
    assert patience.look() == pytest.approx(2)
    machine.now += 10
    assert patience.look() == pytest.approx(12)


def test_one_that_is_new_has_not_waited_yet(machine: Machine) -> None:
    patience = machine.patience()
    machine.now += 10
    machine.waited = {3: 900.0}
    assert patience.look() == pytest.approx(10)


def test_the_kernel_reports_the_wait_of_a_process_and_nothing_of_an_ended_one() -> None:
    assert waited_of(os.getpid()) >= 0.0
    assert waited_of(2**22 + 1) == 0.0


SECONDS: Final = 180.0


class Slow:
    """An end that does not come: each look takes a minute, in which processes wait ``waiting`` seconds."""

    def __init__(self, machine: Machine, waiting: float) -> None:
        self.machine = machine
        self.waiting = waiting
        self.looks = 0

    async def look(self) -> list[str]:
        self.looks += 1
        self.machine.now += 60
        self.machine.waited = {pid: waited + self.waiting for pid, waited in self.machine.waited.items()}
        return [f"not yet, look {self.looks}"]


async def test_a_process_that_had_the_time_and_did_not_finish_fails(machine: Machine) -> None:
    found = await none_of(Slow(machine, 0).look, SECONDS, lambda _: None, machine.patience())
    assert found[0].endswith(", look 10")


async def test_a_process_without_cpu_time_neither_passes_nor_fails(machine: Machine) -> None:
    with pytest.raises(NoProcessorError, match=r"\b660 s\b.*\b110\b"):
        await none_of(Slow(machine, 50).look, SECONDS, lambda _: None, machine.patience())


async def _goes_on(machine: Machine, waiting: float, looked: list[float]) -> None:
    slow = Slow(machine, waiting)
    while True:
        await slow.look()
        looked.append(machine.now)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param(0.0, "people: .* 180 s", id="somebody who had his seconds is late"),
        pytest.param(59.0, "people", id="of somebody who had none nothing was seen"),
    ],
)
async def test_unfinished_work_is_ended_at_the_deadline(machine: Machine, waiting: float, expected: str) -> None:
    looked: list[float] = []
    with pytest.raises(TimeoutError, match=expected) as raised:
        await done_within(SECONDS, machine.patience(), _goes_on(machine, waiting, looked), "people")
    assert isinstance(raised.value, NoProcessorError) == bool(waiting)
    last = len(looked)
    await asyncio.sleep(0)
    assert len(looked) == last, "it goes on"


async def test_finished_work_ends_the_wait_and_a_failure_is_raised() -> None:
    async def fails() -> None:
        raise AssertionError("it fails")

    await done_within(1.0, Patience(list), asyncio.sleep(0), "nothing")
    with pytest.raises(AssertionError, match="it fails"):
        await done_within(1.0, Patience(list), fails(), "nothing")
