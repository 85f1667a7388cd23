"""The runs of a day: made of its date alone, of both kinds every day, and to be had again by the command they print."""

from __future__ import annotations

import json
import shlex
from datetime import date

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import day, fault_plan, outcome, record, run, small_disk
from chaos.fault_plan import Fault
from support.suite import suite_permissions
from trellis.config.settings import PREFIX

DAYS = st.dates(date(2000, 1, 1), date(2200, 1, 1))
FEW = settings(max_examples=50)


@FEW
@given(DAYS)
def test_a_day_has_five_seeds_of_its_own(one: date) -> None:
    seeds = day.seeds_of(one)
    assert seeds == day.seeds_of(one)
    assert len(set(seeds)) == len(seeds) >= 5
    assert {f"{seed}"[:8] for seed in seeds} == {f"{one:%Y%m%d}"}


@FEW
@given(DAYS)
def test_every_day_has_runs_with_one_and_with_three_servers(one: date) -> None:
    servers = [day.schedule_of(seed).servers for seed in day.seeds_of(one)]
    assert servers == list(day.SERVERS)
    assert {1, 3} == set(servers)


@FEW
@given(DAYS)
def test_the_command_makes_the_schedule_of_the_run(one: date) -> None:
    for seed in day.seeds_of(one):
        make, goal, *given_ = shlex.split(day.command_of(seed))
        assert (make, goal) == ("make", "chaos")
        requested = dict(item.split("=", 1) for item in given_)
        rest = shlex.split(requested.pop("ARGS"))
        # As the Makefile hands them on.
        options = run.arguments(
            [*(each for item in requested.items() for each in (f"--{item[0].lower()}", item[1])), *rest]
        )
        assert options.runs == 1
        assert run.schedule_of(options, options.seed) == day.schedule_of(seed)


def test_every_seed_that_found_something_has_its_day() -> None:
    first = date(2026, 11, 23)
    days = [date.fromordinal(first.toordinal() + number) for number in range(len(day.FOUND))]
    assert {day.found_on(item) for item in days} == {*day.FOUND}
    requested = run.arguments(["--found"])
    recorded = {
        (line["seed"], line["seconds"])
        for line in map(json.loads, record.RECORD.read_text(encoding="utf-8").splitlines())
        if line["outcome"] != outcome.OK
    }
    assert {(seed, requested.seconds) for seed in day.FOUND} <= recorded


def test_nothing_of_a_day_takes_more_than_every_machine_has() -> None:
    acts = {step.act for number in range(500) for step in day.schedule_of(number).of(fault_plan.PART)}
    assert Fault.NATS_FULL not in acts
    assert Fault.NATS_PARTED in acts


def test_a_day_may_be_had_again() -> None:
    assert day.day_of({}, date(2026, 11, 23)) == date(2026, 11, 23)
    assert day.day_of({day.VARIABLE: "2026-11-22"}, date(2026, 11, 23)) == date(2026, 11, 22)


def test_variables_inherited_by_a_whole_run_are_no_settings_of_a_service() -> None:
    inherited = (day.VARIABLE, small_disk.OWN_MOUNTS, suite_permissions.FOLDER_VARIABLE)
    assert [name for name in inherited if name.startswith(PREFIX)] == []
