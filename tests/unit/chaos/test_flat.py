"""The rule of a soak: what grows is found, what only comes and goes is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.fault_plan import REPLICAS, Fault
from chaos.flat import MIB, Sample, judge, together
from chaos.soak import GENTLE, soak_schedule
from support.suite.naming import lacking

Held = Callable[[float], float]


def samples(memory: Held = lambda _: 150.0, files: Held = lambda _: 60.0) -> list[Sample]:
    """Return half an hour of a process; MiB and files by the seconds since its beginning."""
    return [Sample(at, int(memory(at) * MIB), int(files(at))) for at in range(0, 1800, 5)]


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(lambda _: 150.0, id="that stays as it is"),
        pytest.param(lambda at: 100.0 + 50.0 * min(1.0, at / 250), id="that fills its caches in the first minutes"),
        pytest.param(lambda at: 150.0 + 40.0 * (at % 60 < 20), id="that has peaks"),
        pytest.param(lambda at: 150.0 + at / 1800, id="that grows by a MiB in half an hour"),
    ],
)
def test_a_process_is_flat(memory: Held) -> None:
    assert judge("it", samples(memory)).growth == ()


def test_memory_that_grows_is_found() -> None:
    [problem] = judge("it", samples(lambda at: 150.0 + at / 100)).growth
    assert lacking(problem, "it", "155.5 MiB", "165.5") == []


def test_unclosed_files_are_found() -> None:
    verdict = judge("it", samples(files=lambda at: 60 + at / 200))
    [problem] = verdict.growth
    assert lacking(problem, *(f"{count:g}" for count in verdict.files)) == []


def leading(first: bool) -> list[Sample]:
    """Return a replica that leads in one half of the time only, with 25 connections and 5 MiB more."""
    return samples(
        lambda at: 120.0 + 5.0 * ((at < 900) == first),
        lambda at: 40.0 + 25.0 * ((at < 900) == first),
    )


def test_replicas_with_changing_leaders_are_flat_together() -> None:
    first, second = leading(first=True), leading(first=False)
    assert len(judge("one", second).growth) == 2
    assert judge("both", together([first, second]), 2).growth == ()


def test_one_of_two_replicas_that_grows_is_found() -> None:
    growing = samples(lambda at: 120.0 + at / 60, lambda at: 40.0 + at / 60)
    assert len(judge("both", together([samples(), growing]), 2).growth) == 2


def test_a_look_that_saw_one_replica_only_is_none_of_both() -> None:
    assert [item.at for item in together([samples()[:3], samples()[1:4]])] == [5, 10]


def test_a_process_that_was_hardly_seen_is_no_flat_one() -> None:
    with pytest.raises(ValueError, match="3 samples"):
        judge("it", samples()[-3:])
    with pytest.raises(ValueError, match="0 samples"):
        judge("it", [])


def test_a_soak_ends_no_process_and_has_each_replica_lead_before_it_is_looked_at() -> None:
    faults = list(soak_schedule(1, 1800).of("faults"))
    assert {Fault(step.act) for step in faults} <= GENTLE | {Fault.STOP}
    assert [(step.on, step.until < 300) for step in faults if step.act == Fault.STOP] == [
        (replica, True) for replica in REPLICAS
    ]
    assert max(step.until for step in faults) <= 1800
