"""`--watch` of lists: the table, then a row for each change, in every format, across outages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from support.suite.naming import lacking
from trellis.bus.errors import BusUnavailable
from trellis.config.settings import SettingsError
from trellis.kube.errors import Call, Forbidden, Unavailable
from trellis_cli.apps.command import apps
from trellis_cli.apps.history import history as apps_history
from trellis_cli.circuit_breaker.command import status as breaker_status
from trellis_cli.command_line import all_commands
from trellis_cli.common.output import Format, make_table
from trellis_cli.common.timings import WatchTimings
from trellis_cli.common.watch import (
    NOT_LISTED,
    Event,
    Listed,
    Printer,
    Shown,
    View,
    changes,
    follow,
    is_watch,
    repeated,
)
from trellis_cli.controllers.table import controllers
from trellis_cli.crds import check
from trellis_cli.dead_letters.command import list_dead_letters
from trellis_cli.nodes import nodes
from trellis_cli.rollout.command import history as rollout_history
from trellis_cli.shims.command import list_shims
from trellis_cli.status.command import status
from trellis_cli.status.row import Part

AT_ONCE = WatchTimings(pause=0.001, rest=0.0, outage=0.05)
LISTS = (
    "apps", "apps history", "circuit-breaker status", "controllers", "crds check", "dead-letters list", "nodes",
    "rollout history", "shims list", "status",
)  # fmt: skip


@dataclass(frozen=True)
class Thing:
    """A row; time alone changes its age."""

    name: str
    state: str = "Waiting"
    age: int = 0


def table_of(rows: Sequence[Thing]) -> Table:
    table = make_table("NAME", "AGE", "STATE", fold={"STATE"})
    for row in rows:
        table.add_row(Text(row.name), str(row.age), Text(row.state))
    return table


VIEW: View[Thing] = View(
    key=lambda row: row.name,
    table=table_of,
    document=lambda row: {"name": row.name, "state": row.state},
    name=lambda row: f"thing/{row.name}",
    state=lambda row: row.state,
)
READS = (
    [Thing("a-long-name"), Thing("b")],
    [Thing("a-long-name", age=1), Thing("b", "Ready", age=1)],
    [Thing("b", "Ready", age=2), Thing("c", "[bold]odd")],
    [Thing("b", "Ready", age=3), Thing("c", "[bold]odd", age=1)],
)


def printed(capsys: pytest.CaptureFixture[str], output: Format, **options: bool) -> list[str]:
    printer = Printer(VIEW, Shown(output, **options))
    for rows in READS:
        printer.show(Listed(rows))
    out, err = capsys.readouterr()
    assert err == ""
    return str(out).splitlines()


def test_the_table_is_followed_by_the_rows_that_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Format.TABLE) == [
        "NAME         AGE  STATE",
        "a-long-name  0    Waiting",
        "b            0    Waiting",
        "b            1    Ready",
        "c            0    [bold]odd",
        f"a-long-name  -    {NOT_LISTED}",
    ]


def test_headings_can_be_omitted(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Format.TABLE, no_headers=True)[0].split() == ["a-long-name", "0", "Waiting"]


def test_the_headings_come_with_the_first_row(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(VIEW, Shown(Format.TABLE))
    printer.show(Listed([]))
    assert capsys.readouterr().out == ""
    printer.show(Listed([Thing("a")]))
    assert capsys.readouterr().out.splitlines()[0].split() == ["NAME", "AGE", "STATE"]


def test_programs_get_one_object_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    found = [json.loads(line) for line in printed(capsys, Format.JSON)]
    assert [(item["name"], item["state"]) for item in found] == [
        ("a-long-name", "Waiting"),
        ("b", "Waiting"),
        ("b", "Ready"),
        ("c", "[bold]odd"),
        ("a-long-name", "Waiting"),
    ]
    documents = list(yaml.safe_load_all("\n".join(printed(capsys, Format.YAML))))
    assert documents == found


EVENTS = [Event.ADDED, Event.ADDED, Event.MODIFIED, Event.ADDED, Event.DELETED]


def test_programs_get_the_kind_of_each_change_if_they_ask(capsys: pytest.CaptureFixture[str]) -> None:
    found = [json.loads(line) for line in printed(capsys, Format.JSON, events=True)]
    assert [(item["type"], item["object"]["name"]) for item in found] == [
        *zip(EVENTS, ("a-long-name", "b", "b", "c", "a-long-name"), strict=True)
    ]
    lines = printed(capsys, Format.TABLE, events=True)
    assert lines[0].split()[:2] == ["EVENT", "NAME"]
    assert [line.split()[0] for line in lines[1:]] == EVENTS
    assert [line.split()[0] for line in printed(capsys, Format.NAME, events=True)] == EVENTS


def test_names_are_printed_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Format.NAME) == [
        "thing/a-long-name",
        "thing/b",
        "thing/b",
        "thing/c",
        "thing/a-long-name",
    ]


def test_a_row_that_is_no_object_has_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    view: View[Thing] = View(key=lambda row: row.name, table=table_of, document=lambda row: row.name)
    Printer(view, Shown(Format.NAME)).show(Listed([Thing("a")]))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("output", [Format.TABLE, Format.JSON])
def test_a_note_is_printed_once_while_it_holds(capsys: pytest.CaptureFixture[str], output: Format) -> None:
    printer = Printer(VIEW, Shown(output))
    for notes in (["no Jobs"], ["no Jobs"], [], ["no Jobs"]):
        printer.show(Listed([], notes))
    assert capsys.readouterr().err == "Note: no Jobs\n" * 2


THINGS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(("Ready", "Failed")))


@given(THINGS, THINGS)
def test_the_changes_turn_one_read_into_the_next(before: dict[str, str], after: dict[str, str]) -> None:
    found = changes(dict(before.items()), dict(after.items()), state=lambda row: row)
    kinds = [change.event for change in found]
    assert kinds.count(Event.ADDED) == len(after.keys() - before.keys())
    assert kinds.count(Event.DELETED) == len(before.keys() - after.keys())
    assert kinds.count(Event.MODIFIED) == sum(before[name] != after[name] for name in before.keys() & after.keys())


def script(*answers: Any) -> Any:
    """Return a read with these results, the last one repeatedly; errors are raised."""
    left = list(answers)

    async def read() -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return read


OUTAGE = Unavailable(Call("LIST", "Node", "nodes"), status=0, reason="Timeout", message="https://k8s does not respond")
REFUSAL = Forbidden(Call("LIST", "Node", "nodes"), status=403, reason="Forbidden", message="nodes is forbidden")


async def test_a_short_outage_is_one_note(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    async with aclosing(repeated(script(1, OUTAGE, OUTAGE, 2, BusUnavailable("no NATS"), 3), AT_ONCE)) as results:
        async for result in results:
            found.append(result)
            if result == 3:
                break
    assert found == [1, 2, 3]
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 2
    assert lacking(notes[0], "Note", "https://k8s") == []
    assert lacking(notes[1], "Note", "no NATS") == []


@pytest.mark.parametrize("answers", [(OUTAGE,), (Listed([]), OUTAGE)], ids=["at the first read", "for a long time"])
async def test_another_outage_ends_the_watch(answers: tuple[Any, ...]) -> None:
    with pytest.raises(Unavailable):
        await follow(script(*answers), VIEW, Shown(Format.JSON), AT_ONCE)


async def test_a_refusal_ends_the_watch() -> None:
    with pytest.raises(Forbidden):
        await follow(script(Listed(READS[0]), REFUSAL), VIEW, Shown(Format.JSON), AT_ONCE)


async def test_a_slow_read_is_followed_by_a_longer_pause() -> None:
    times: list[float] = []

    async def read() -> float:
        await asyncio.sleep(0.02)
        times.append(time.monotonic())
        return times[-1]

    async with aclosing(repeated(read, WatchTimings(pause=0.001, rest=4.0))) as results:
        async for _ in results:
            if len(times) == 2:
                break
    assert times[1] - times[0] >= 0.1


async def test_a_watch_ends_at_its_time() -> None:
    async with aclosing(repeated(script(1), WatchTimings(), until=time.monotonic())) as results:
        assert [result async for result in results] == [1]


def options_of(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    yield name, {option for parameter in command.params for option in parameter.opts}
    for below, item in getattr(command, "commands", {}).items():
        yield from options_of(item, f"{name} {below}".strip())


def test_every_list_of_state_can_be_watched() -> None:
    found = dict(options_of(all_commands()))
    assert {name for name, options in found.items() if "--output-watch-events" in options} == {*LISTS}
    assert all({"--watch", "-w", "--no-headers", "--output"} <= found[name] for name in LISTS)
    of_kubectl = {name for name, options in found.items() if "-w" in options}
    assert of_kubectl == {*LISTS, "rollout status"}, "-w means --watch everywhere"


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (lambda: apps(ctx=NO_COMMAND, live=True, watch=True), "--live"),
        (lambda: apps_history(["a"], live=True, watch=True), "--live"),
        (lambda: apps_history(["a"], nats="nats://a", watch=True), "--nats"),
        (lambda: list_shims(catalogue=True, watch=True), "--catalogue"),
        (lambda: rollout_history(["a"], revision=1, watch=True), "--revision"),
    ],
)
def test_what_is_read_once_cannot_be_watched(run: Any, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    assert lacking(capsys.readouterr().err, "--watch", named) == []


class Context:
    """A call of a group without one of its commands."""

    invoked_subcommand = None


NO_COMMAND: Any = Context()


@pytest.mark.parametrize(
    "run",
    [
        lambda: apps(ctx=NO_COMMAND, output_watch_events=True),
        lambda: apps_history(["a"], output_watch_events=True),
        lambda: breaker_status(output_watch_events=True),
        lambda: check(output_watch_events=True),
        lambda: controllers(ctx=NO_COMMAND, output_watch_events=True),
        lambda: list_dead_letters(output_watch_events=True),
        lambda: list_shims(output_watch_events=True),
        lambda: nodes(output_watch_events=True),
        lambda: rollout_history(["a"], output_watch_events=True),
        lambda: status(output_watch_events=True),
    ],
)
def test_kinds_of_changes_need_a_watch(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    assert lacking(capsys.readouterr().err, "--output-watch-events", "--watch") == []


def test_options_that_do_not_contradict_each_other_are_accepted() -> None:
    assert is_watch(watch=True, events=True, unless={"--live": False})
    assert not is_watch(watch=False, events=False, unless={"--live": True})
    with pytest.raises(SettingsError):
        is_watch(watch=False, events=True)


def test_a_row_of_the_status_is_the_same_while_only_time_passes() -> None:
    led = Part("provisioner", "led by a, renewed 1 s ago", data={"holder": "a", "renewed_seconds_ago": 1})
    later = Part("provisioner", "led by a, renewed 2 s ago", data={"holder": "a", "renewed_seconds_ago": 2})
    other = Part("provisioner", "led by b, renewed 1 s ago", data={"holder": "b", "renewed_seconds_ago": 1})
    assert led.state() == later.state()
    assert led.state() != other.state()
    states = [
        Part("bus", f"{count}", data={"streams": [{"messages": count}], "dead_letters": dead}).state()
        for count, dead in ((1, 0), (2, 0), (2, 1))
    ]
    assert states[0] == states[1] != states[2]
    assert Part("a", "1 of 2 pods ready").state() != Part("a", "2 of 2 pods ready").state()
