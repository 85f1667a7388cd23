"""Views of `trellis top`: one screen of a sheet, or all sheets one after another without a terminal.

In: entities, the selection. Out: renderables of rich. Called by ``top``. Invariant: text from the cluster is never
markup and contains no terminal control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trellis.read_model.health import Health
from trellis_cli.common.output import one_line
from trellis_cli.top.keys import DIGITS, Screen
from trellis_cli.top.model import SHEETS, Entities, Kind, Row, Wanted, counts, notes, rows, sheets, unread

STYLES: Final = {
    Health.HEALTHY: "green",
    Health.PROGRESSING: "cyan",
    Health.SUSPENDED: "yellow",
    Health.DEGRADED: "bold red",
    Health.MISSING: "bold red",
    Health.NOT_OPTED_IN: "dim",
    Health.UNKNOWN: "magenta",
}
_KEYS: Final = "{digits} ←→ sheet  ↑↓ line  s sort  r reverse  / filter  esc clear filter  q quit"
_WARNINGS_SHARE: Final = 4
"""Share of lines for warnings, 1/n: users with few permissions have up to kinds times namespaces warnings."""
_LEAST: Final = 3
"""Minimum number of visible rows, as long as other lines can be omitted."""


def screen_of(screen: Screen, entities: Entities, height: int, *, trouble: str = "") -> RenderableType:
    """Return one screen of ``height`` lines. ``trouble``: why the data may be stale, "" if it is current."""
    found = rows(screen.kind, entities, screen.wanted)
    at = screen.place([row.id for row in found])
    warnings = [_warning(note) for note in ([trouble] if trouble else []) + notes(screen.kind, entities)]
    above = [_tabs(screen.kind, entities), _counts(screen, entities, len(found)), *_bounded(warnings, height)]
    below = [*_details_of(found, at), _last(screen, entities)]
    while (room := height - 1 - len(above) - len(below)) < _LEAST and len(above) + len(below) > 1:
        # The filter input and the selected line stay visible.
        if len(below) > 1:
            del below[0]
        else:
            del above[-1]
    room = max(room, 1)
    first = min(max(at - room // 2, 0), max(len(found) - room, 0))
    window = found[first : first + room]
    table = _table(screen.kind, window, wanted=screen.wanted, selected=found[at].id if found else "")
    blank = [Text("")] * (room - len(window))
    return Group(*above, table, *blank, *below)


def _bounded(warnings: list[Text], height: int) -> list[Text]:
    most = max(height // _WARNINGS_SHARE, 1)
    if len(warnings) <= most:
        return warnings
    left = len(warnings) - most + 1
    return [*warnings[: most - 1], _warning(f"{left} more warnings: see `trellis top --once`")]


def sheet_of(kind: Kind, entities: Entities, wanted: Wanted) -> RenderableType:
    """Return a complete sheet."""
    found = rows(kind, entities, wanted)
    return _table(kind, found, wanted=wanted) if found else Text(f"no {kind.value}", style="dim")


def _tabs(current: Kind, entities: Entities) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, kind in enumerate(sheets(entities), 1):
        digit = f"{number % DIGITS} " if number <= DIGITS else ""
        line.append(f" {digit}{kind.value} ", style="reverse bold" if kind is current else "")
        line.append(" ")
    return line


def _counts(screen: Screen, entities: Entities, fitting: int) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    found = counts(screen.kind, entities)
    line.append(f" {screen.kind.value}: {sum(found.values())}", style="bold")
    for state, count in found.items():
        line.append("  ")
        line.append(f"{count} {state}", style=STYLES[Health(state)])
    if screen.wanted.terms:
        line.append(f"   {fitting} match the filter", style="bold")
    if waiting := [part for part in unread(entities) if part in SHEETS[screen.kind].parts]:
        line.append(f"   reading {', '.join(waiting)}", style="dim")
    return line


def _table(kind: Kind, found: Sequence[Row], *, wanted: Wanted, selected: str = "") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    columns = SHEETS[kind].columns
    for column in columns:
        arrow = ("▲" if wanted.reverse else "▼") if column.heading.lower() == wanted.sort else ""
        justify = "right" if column.number else "left"
        table.add_column(column.heading + arrow, no_wrap=True, overflow="ellipsis", justify=justify)  # type: ignore[arg-type]  # one of its words
    table.add_column("MESSAGE", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in found:
        cells = [
            Text(one_line(cell), style=STYLES[Health(row.state)] if column.heading == "HEALTH" else "")
            for column, cell in zip(columns, row.cells, strict=True)
        ]
        table.add_row(*cells, Text(one_line(row.reason)), style="reverse" if row.id == selected else "")
    return table


def _details_of(found: Sequence[Row], at: int) -> list[Text]:
    """Return two lines for the selected row: the complete reason, and the command with details."""
    if not found:
        return [Text("no lines", style="dim"), Text("")]
    row = found[at]
    kind, _, rest = row.explained.partition("/")
    namespace, _, name = rest.rpartition("/")
    place = f" --namespace {namespace}" if namespace else ""
    command = f"   trellis explain {kind}/{name}{place}" if name else ""
    first = Text.assemble((f"{row.id}: ", "bold"), one_line(row.reason) or row.state, no_wrap=True, overflow="ellipsis")
    return [first, Text(one_line(command), style="dim", no_wrap=True, overflow="ellipsis")]


def _last(screen: Screen, entities: Entities) -> Text:
    if screen.typing:
        return Text(f"filter: {screen.wanted.terms}▏  enter keeps it, escape clears it", style="bold", no_wrap=True)
    filter_text = f"filter: {screen.wanted.terms}   " if screen.wanted.terms else ""
    count = len(sheets(entities))
    keys = _KEYS.format(digits=f"1-{count}" if count < DIGITS else "1-9 0")
    return Text(filter_text + keys, style="dim", no_wrap=True, overflow="ellipsis")


def _warning(text: str) -> Text:
    return Text(f"! {one_line(text)}", style="yellow", no_wrap=True, overflow="ellipsis")
