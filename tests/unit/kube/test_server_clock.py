"""The time of the API server: its Date counts where the wall clock is wrong, and nothing that is no date."""

from __future__ import annotations

import contextlib
from email.utils import formatdate

import pytest

from trellis.kube.errors import KubeError
from trellis.kube.resources import NODES
from trellis.kube.server_clock import ServerClock
from trellis.kube.transport import Reply
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube

TRUE = 1_800_000_000.0
HOUR = 3600.0


class Clocks:
    """A wall clock that may be wrong, and a steady one."""

    def __init__(self, wrong: float = 0.0) -> None:
        self.wrong = wrong
        self.passed = 100.0

    def wall(self) -> float:
        return TRUE + self.passed - 100.0 + self.wrong

    def steady(self) -> float:
        return self.passed


def date(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)


@pytest.mark.parametrize("wrong", [HOUR, -HOUR, 30 * 24 * HOUR, -300.0])
def test_a_wall_clock_that_is_wrong_counts_until_the_first_answer(wrong: float) -> None:
    clocks = Clocks(wrong)
    clock = ServerClock(clocks.wall, clocks.steady)
    assert clock() == TRUE + wrong
    clock.answered(date(TRUE))
    assert clock() == TRUE
    clocks.passed += 7.25
    assert clock() == TRUE + 7.25


def test_a_wall_clock_that_agrees_counts_to_the_fraction_of_a_second() -> None:
    clocks = Clocks(0.75)
    clock = ServerClock(clocks.wall, clocks.steady)
    clock.answered(date(TRUE))
    assert clock() == TRUE + 0.75


def test_a_step_of_the_wall_clock_is_not_followed_and_one_of_the_server_is() -> None:
    clocks = Clocks()
    clock = ServerClock(clocks.wall, clocks.steady)
    clock.answered(date(TRUE))
    clocks.wrong = HOUR
    clocks.passed += 1.0
    assert clock() == TRUE + 1.0
    clock.answered(date(TRUE + 601))
    assert clock() == TRUE + 601


NONSENSE = (None, "", "soon", "Mon, 99 Foo 2026 00:00:00 GMT", "Fri, 01 Jan 99999 00:00:00 GMT")


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_an_invalid_date_is_ignored(nonsense: str | None) -> None:
    clocks = Clocks()
    clock = ServerClock(clocks.wall, clocks.steady)
    clock.answered(nonsense)
    assert clock() == TRUE


@pytest.mark.parametrize(("status", "counts"), [(200, True), (404, True), (429, True), (502, False), (503, False)])
async def test_each_view_of_a_connection_has_the_time_of_any_answer_but_a_broken_server_s(
    status: int, counts: bool
) -> None:
    kube = FakeKube(telemetry=setup("test"), health=Health("test"))
    view = kube.guarded(lambda: None)
    before = kube.now()
    reply = Reply(status, b"{}", {"Date": date(before + HOUR)})
    kube.answer_next(2, lambda _: reply)
    with contextlib.suppress(KubeError):
        await view.get(NODES, "n", timeout=0.5)
    assert (kube.now() - before > HOUR - 10) is counts
