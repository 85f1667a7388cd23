"""``trellis nodes``: where each node stands on its way to run Wasm.

In: flags. Out: a table or JSON. Called by the command line; the demo ends with the same table. Writes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.provisioning.views import Wish
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import held_up
from trellis.read_model.tables.nodes import NodeRow, NodeState, summary, tally, with_causes
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.gather import Rollout, connected, read_rollout
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import Format, OutputOption, console, print_json
from trellis_cli.common.settings import ClientSettings, client_settings

STYLES: Final = {
    NodeState.NOT_OPTED_IN: "dim",
    NodeState.INVALID_ANNOTATION: "yellow",
    NodeState.WAITING: "",
    NodeState.PROVISIONING: "cyan",
    NodeState.VERIFYING: "cyan",
    NodeState.READY: "green",
    NodeState.FAILED: "bold red",
}
_NONE: Final = "-"


def nodes(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    every: Annotated[bool, typer.Option("--all", help="also nodes that have nothing to do with Wasm")] = False,
) -> None:
    """Show where each node stands: opted in, waiting, provisioning, ready or failed, and why.

    JSON: `{"nodes": [{"name", "wish", "by", "state", "verified", "digest", "attempt", "message"}], "counts":
    {"Ready": 12, …}, "notes": []}`. `wish` is In, Out or Invalid; `state` is NotOptedIn, InvalidAnnotation, Waiting,
    Provisioning, Verifying, Ready or Failed. `counts` has every state, and counts every node.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        show(asyncio.run(_read(settings)), output, every=every)


async def _read(settings: ClientSettings) -> Rollout:
    async with connected(settings) as kube:
        reading = Reading(kube, settings.namespace)
        held = held_up(reading, settings.installer_namespace)
        rollout, lines = await asyncio.gather(read_rollout(kube, settings), held)
    unread = (line.text for line in reading.notes if "jobs.batch" not in line.text)  # the rollout's notes tell of Jobs
    rows = with_causes(rollout.rows, lines)
    return replace(rollout, rows=rows, notes=(*rollout.notes, *unread))


def show(rollout: Rollout, output: Format, *, every: bool) -> None:
    """Print the rows of concern, or every row."""
    shown = [row for row in rollout.rows if every or row.concern]
    if output is Format.JSON:
        counts = {state.value: count for state, count in tally(rollout.rows).items()}
        print_json({"nodes": [row.document() for row in shown], "counts": counts, "notes": rollout.notes})
        return
    for note in rollout.notes:
        print(f"note: {note}", file=sys.stderr)  # noqa: T201 - beside the table, not in it
    out = console()
    if shown:
        out.print(table_of(shown))
    out.print(footer(rollout.rows, shown), highlight=False)


def table_of(rows: Sequence[NodeRow]) -> Table:
    """Return the table of these rows; nothing is cut, names and messages are folded where the terminal is narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NODE", "WISH", "STATE", "VERIFIED", "DIGEST", "ATTEMPT", "MESSAGE"):
        table.add_column(heading, no_wrap=heading not in {"NODE", "MESSAGE"}, overflow="fold")
    for row in rows:
        table.add_row(
            Text(row.name),
            _wish(row),
            Text(row.state.value, style=STYLES[row.state]),
            row.verified or _NONE,
            row.digest or _NONE,
            str(row.attempt) if row.attempt else _NONE,
            Text(row.message),
        )
    return table


def footer(rows: Sequence[NodeRow], shown: Sequence[NodeRow]) -> str:
    """Return the counts of all nodes, and what to do if there is nothing to show."""
    if not shown:
        hint = "annotate one: kubectl annotate node NAME kwasm.sh/kwasm-node=true" if rows else "the cluster has none"
        return f"no node has to do with Wasm ({hint})"
    return summary(rows)


def _wish(row: NodeRow) -> str:
    return row.wish.value if row.by or row.wish is not Wish.IN else f"{row.wish.value} (no annotation)"
