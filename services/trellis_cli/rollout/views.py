"""Views of a rollout: a page, a line per change, or a progress bar.

In: states of a rollout. Out: standard output. Called by ``trellis rollout status``. Invariant: without a terminal the
output has no control sequences; text from the cluster is never markup.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from trellis.crds.conditions import shortened
from trellis.read_model.tables.rollout import NodeStage, Phase, RolloutSnapshot, ShimNode, Standing, document
from trellis_cli.common.output import Format, console, make_table, one_line, print_document, print_text

_STYLES: Final = {
    NodeStage.UPDATED: "green",
    NodeStage.IN_PROGRESS: "cyan",
    NodeStage.FAILED: "bold red",
    NodeStage.BLOCKED: "yellow",
    NodeStage.WAITING: "",
    NodeStage.REMOVING: "dim",
}
_STAGE_TEXTS: Final = {
    NodeStage.IN_PROGRESS: "in progress",
    NodeStage.FAILED: "failed",
    NodeStage.BLOCKED: "blocked",
    NodeStage.WAITING: "waiting",
    NodeStage.REMOVING: "to be removed",
}
_PHASES: Final = {Phase.COMPLETE: "green", Phase.HALTED: "bold red", Phase.DEGRADED: "bold red", Phase.PAUSED: "yellow"}
_NONE: Final = "-"
_LIVE_NODES: Final = 8
_MESSAGE_MAX: Final = 300


class Display(Protocol):
    """Receives each state, changed or not."""

    def show(self, standing: Standing, snapshot: RolloutSnapshot) -> None:
        """Show the current state of the rollout."""


def summary(standing: Standing) -> str:
    """Return one line: ``spin (revision 2): Progressing: 3 of 12 nodes updated, 1 in progress, 8 waiting``."""
    counts = standing.counts
    parts = [f"{counts[NodeStage.UPDATED]} of {standing.desired} nodes updated"]
    parts += [f"{counts[stage]} {word}" for stage, word in _STAGE_TEXTS.items() if counts[stage]]
    revision = f" (revision {standing.revision})" if standing.revision is not None else ""
    text = f"{standing.shim}{revision}: {standing.phase.value}: {', '.join(parts)}"
    return "; ".join(filter(None, (text, one_line(standing.message), standing.advice)))


def page(standing: Standing) -> Group:
    """Return the table of nodes, failed ones with their reasons, and the summary below it."""
    line = Text(summary(standing), style=_PHASES.get(standing.phase, ""))
    return Group(_table(standing.nodes), line) if standing.nodes else Group(line)


def _table(nodes: tuple[ShimNode, ...]) -> Table:
    table = make_table("NODE", "STAGE", "ATTEMPT", "MESSAGE", fold={"NODE", "MESSAGE"})
    for node in nodes:
        table.add_row(
            Text(node.name),
            Text(node.stage.value, style=_STYLES[node.stage]),
            str(node.attempt) if node.attempt else _NONE,
            Text(shortened(one_line(node.message), _MESSAGE_MAX)),
        )
    return table


class Lines:
    """Prints a line per change of the rollout and per failed node; with JSON a document per change."""

    def __init__(self, output: Format) -> None:
        self._output = output
        self._began = time.monotonic()
        self._last: Standing | None = None

    def show(self, standing: Standing, snapshot: RolloutSnapshot) -> None:
        """Print the state if it changed."""
        if standing == self._last:
            return
        known = self._last.nodes if self._last else ()
        self._last = standing
        if self._output.structured:
            print_document(self._output, document(standing, snapshot), lines=True)
            return
        at = f"{time.monotonic() - self._began:6.1f} s  "
        for node in standing.nodes:
            if node.stage is NodeStage.FAILED and node not in known:
                print_text(f"{at}{node.name} failed: {shortened(one_line(node.message), _MESSAGE_MAX)}")
        print_text(at + summary(standing))


class OnTerminal:
    """A bar of updated nodes, below it the nodes that are in progress or failed."""

    def __init__(self, out: Console) -> None:
        self._bar = Progress(TextColumn("updated"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=out)
        self._task = self._bar.add_task("nodes", total=None)
        self.live = Live(self._bar, console=out, transient=True, refresh_per_second=8)

    def show(self, standing: Standing, snapshot: RolloutSnapshot) -> None:
        """Update the bar."""
        del snapshot
        self._bar.update(self._task, total=standing.desired, completed=standing.counts[NodeStage.UPDATED])
        busy = tuple(node for node in standing.nodes if node.stage in {NodeStage.FAILED, NodeStage.IN_PROGRESS})
        more = len(busy) - _LIVE_NODES
        rest = [Text(f"and {more} more", style="dim")] if more > 0 else []
        shown = [_table(busy[:_LIVE_NODES])] if busy else []
        self.live.update(Group(self._bar, Text(summary(standing)), *shown, *rest))


@contextmanager
def display(output: Format) -> Iterator[Display]:
    """Return the display that suits standard output; on a terminal the last state stays as a page."""
    out = console()
    if output.structured or not out.is_terminal:
        yield Lines(output)
        return
    moving = OnTerminal(out)
    with moving.live:
        yield moving
