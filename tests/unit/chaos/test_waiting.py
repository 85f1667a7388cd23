"""Patience counts the seconds that a process had a processor, or wanted none."""

from __future__ import annotations

import os

import pytest

from chaos import waiting
from chaos.waiting import Patience, waited_of


class Machine:
    """A clock, and how long each process has waited for a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.waited = {1: 5.0, 2: 50.0}
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(waiting, "waited_of", lambda pid: self.waited[pid])

    def patience(self) -> Patience:
        made = Patience(lambda: self.waited)
        made.look()
        return made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_all_seconds_count_of_whom_nobody_lets_wait(machine: Machine) -> None:
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


def test_the_kernel_says_how_long_a_process_waited_and_nothing_of_one_that_is_gone() -> None:
    assert waited_of(os.getpid()) >= 0.0
    assert waited_of(2**22 + 1) == 0.0
