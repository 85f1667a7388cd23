"""``--watch`` of lists: the table first, then a row for each change, as ``kubectl get --watch``.

In: a function that reads all rows, and the view of the list. Out: standard output, until Ctrl-C. Called by the commands
that list the state of a cluster; ``rollout status`` reads with the same loop. Invariants: rows are compared without
their ages, so that time alone prints nothing; a short outage of the server is one note, a longer one an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, TypeVar

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from trellis.bus.errors import BusUnavailable
from trellis.config.errors import SettingsError
from trellis.kube.client import Kube
from trellis.kube.errors import Unavailable
from trellis_cli.common.errors import describe_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import print_note
from trellis_cli.common.output import Format, console, make_table, print_document, print_names, print_result
from trellis_cli.common.settings import ClientSettings
from trellis_cli.common.timings import WatchTimings

Row = TypeVar("Row")
Found = TypeVar("Found")

NOT_LISTED: Final = "not listed any more"
"""Text of the last column for a row that the list does not have any more."""
_NONE: Final = "-"
_EVENT: Final = "EVENT"
_GAP: Final = 2
"""Spaces between two columns."""

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="after the list, print a row for each change, until Ctrl-C")
]
WatchEventsOption = Annotated[
    bool,
    typer.Option("--output-watch-events", help="with --watch: print ADDED, MODIFIED or DELETED with each row"),
]


class Event(StrEnum):
    """The change of a row, with the words of the Kubernetes API for watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class View(Generic[Row]):
    """The output of a list.

    ``key``: identifies a row in the list; ``table``: of some rows; ``named``: its first columns, which name a row;
    ``document``: a row for JSON; ``name``: for ``-o name``, "" if it is not an object; ``state``: compared between two
    reads, without values that only time changes.
    """

    key: Callable[[Row], Hashable]
    table: Callable[[Sequence[Row]], Table]
    document: Callable[[Row], object]
    name: Callable[[Row], str] = lambda _: ""
    state: Callable[[Row], object] = lambda row: row
    named: int = 1


@dataclass(frozen=True, slots=True)
class Listed(Generic[Row]):
    """All rows of one read. ``notes``: objects that could not be read."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """The options of the output. ``events``: with the kind of each change."""

    output: Format
    no_headers: bool = False
    events: bool = False


@dataclass(frozen=True, slots=True)
class Change(Generic[Row]):
    """A row that is new, has changed, or is not listed any more; then ``row`` is the last one."""

    event: Event
    row: Row


def is_watch(*, watch: bool, events: bool, unless: Mapping[str, bool] | None = None) -> bool:
    """Return whether to watch. ``unless``: options with which there is nothing to watch, and whether they are given.

    Raises:
        SettingsError: the options contradict each other.
    """
    if events and not watch:
        raise SettingsError("--output-watch-events: needs --watch")
    for option, given in (unless or {}).items():
        if watch and given:
            raise SettingsError(f"--watch: cannot be used with {option}: its output is read once")
    return watch


def changes(
    before: Mapping[Hashable, Row], after: Mapping[Hashable, Row], state: Callable[[Row], object]
) -> list[Change[Row]]:
    """Return the changes between two reads, in the order of the list; rows that are not listed any more come last."""
    found = []
    for key, row in after.items():
        if key not in before:
            found.append(Change(Event.ADDED, row))
        elif state(before[key]) != state(row):
            found.append(Change(Event.MODIFIED, row))
    return found + [Change(Event.DELETED, row) for key, row in before.items() if key not in after]


class Printer(Generic[Row]):
    """Prints the first read as a whole, and of each later one the changes."""

    def __init__(self, view: View[Row], shown: Shown) -> None:
        self._view = view
        self._shown = shown
        self._rows: Mapping[Hashable, Row] = {}
        self._notes: Sequence[str] = ()
        self._widths: list[int] = []

    def show(self, listed: Listed[Row]) -> None:
        """Print what changed since the last call."""
        for note in listed.notes:
            if note not in self._notes:
                print_note(note)
        rows = {self._view.key(row): row for row in listed.rows}
        found = changes(self._rows, rows, self._view.state)
        self._rows, self._notes = rows, listed.notes
        if not found:
            return
        if self._shown.output.structured:
            for change in found:
                document = self._view.document(change.row)
                event = {"type": change.event.value, "object": document}
                print_document(self._shown.output, event if self._shown.events else document, lines=True)
        elif self._shown.output is Format.NAME:
            print_names(self._name(change) for change in found if self._view.name(change.row))
        else:
            self._print_table(found)

    def _name(self, change: Change[Row]) -> str:
        name = self._view.name(change.row)
        return f"{change.event.value} {name}" if self._shown.events else name

    def _print_table(self, found: Sequence[Change[Row]]) -> None:
        table = self._view.table([change.row for change in found])
        headings = [str(column.header) for column in table.columns]
        fold = {str(column.header) for column in table.columns if not column.no_wrap}
        rows = [list(cells) for cells in zip(*(column.cells for column in table.columns), strict=True)]
        for cells, change in zip(rows, found, strict=True):
            if change.event is Event.DELETED:
                left = len(cells) - self._view.named
                cells[self._view.named :] = [Text(_NONE)] * (left - 1) + [Text(NOT_LISTED, style="dim")]
        if self._shown.events:
            headings = [_EVENT, *headings]
            rows = [[Text(change.event.value), *cells] for cells, change in zip(rows, found, strict=True)]
        first = not self._widths
        self._widths = _widest(self._widths or map(cell_len, headings), rows)
        print_result(_aligned(headings, fold, rows, self._widths), no_headers=self._shown.no_headers or not first)


def _widest(known: Iterable[int], rows: Sequence[Sequence[Any]]) -> list[int]:
    widths = list(known)
    for cells in rows:
        widths = [max(width, cell_len(str(cell))) for width, cell in zip(widths, cells, strict=True)]
    return widths


def _aligned(headings: Sequence[str], fold: set[str], rows: Sequence[Sequence[Any]], widths: Sequence[int]) -> Table:
    """Return a table whose columns begin where those of the rows above do, if the terminal is wide enough."""
    table = make_table(*headings, fold=fold)
    if sum(widths[:-1]) + _GAP * len(widths) <= console().width * 2 / 3:
        for column, width in zip(table.columns[:-1], widths, strict=False):
            column.min_width = width
    for cells in rows:
        table.add_row(*cells)
    return table


async def repeated(
    read: Callable[[], Awaitable[Found]], timings: WatchTimings = WatchTimings(), *, until: float | None = None
) -> AsyncGenerator[Found, None]:
    """Yield the result of each read; after the first one, an outage of the server is a note.

    ``until``: a time of the monotonic clock, after which there is no further read.

    Raises:
        Unavailable, BusUnavailable: the server did not respond to the first read, or for the time of ``timings``.
    """
    answered: float | None = None
    noted = False
    while True:
        began = time.monotonic()
        try:
            found = await read()
        except (Unavailable, BusUnavailable) as error:
            if answered is None or time.monotonic() - answered > timings.outage:
                raise
            if not noted:
                print_note(f"{describe_error(error)}; retrying")
            noted = True
            pause = timings.pause
        else:
            answered, noted = time.monotonic(), False
            pause = max(timings.pause, (answered - began) * timings.rest)
            yield found
        pause = pause if until is None else min(pause, until - time.monotonic())
        if pause <= 0:
            return
        await asyncio.sleep(pause)


async def follow(
    read: Callable[[], Awaitable[Listed[Row]]], view: View[Row], shown: Shown, timings: WatchTimings = WatchTimings()
) -> None:
    """Print the list and its changes until the task is cancelled; raises as :func:`repeated`."""
    printer = Printer(view, shown)
    async with contextlib.aclosing(repeated(read, timings)) as found:
        async for listed in found:
            printer.show(listed)


async def watch_cluster(
    settings: ClientSettings, read: Callable[[Kube], Awaitable[Listed[Row]]], view: View[Row], shown: Shown
) -> None:
    """Print a list of the cluster and its changes, with one connection; raises KubeError, and as :func:`repeated`."""
    async with connected(settings) as kube:
        await follow(lambda: read(kube), view, shown)
