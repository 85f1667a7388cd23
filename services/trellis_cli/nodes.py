"""``trellis nodes``: nodes with their opt-in, state and last error.

In: flags. Out: a table or JSON. Called by the command line; the demo prints the same table. Writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.kube.client import Kube
from trellis.read_model.health import Health
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import pending_cause
from trellis.read_model.tables.nodes import NodeRow, NodeState, summary, tally, with_causes
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.gather import read_cluster
from trellis_cli.common.messages import print_note
from trellis_cli.common.objects import printed_name
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import (
    Format,
    NoHeadersOption,
    OutputOption,
    make_table,
    print_document,
    print_names,
    print_result,
)
from trellis_cli.common.rollout_state import Rollout, read_rollout
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, is_watch, watch_cluster

STYLES: Final = {
    NodeState.UNKNOWN: "yellow",
    NodeState.NOT_OPTED_IN: "dim",
    NodeState.INVALID_ANNOTATION: "yellow",
    NodeState.WAITING: "",
    NodeState.PROVISIONING: "cyan",
    NodeState.VERIFYING: "cyan",
    NodeState.READY: "green",
    NodeState.FAILED: "bold red",
}
_NONE: Final = "-"


def nodes(  # noqa: PLR0913, PLR0917 - options of a command line
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
    every: Annotated[bool, typer.Option("--all", help="also nodes without opt-in")] = False,
) -> None:
    """List nodes with their opt-in, state and last error.

    JSON: `{"nodes": [{"name", "opt_in", "opted_in_by", "state", "verified", "digest", "attempt", "message"}], "counts":
    {"Ready": 12, …}, "notes": []}`. `opt_in` is true, false, invalid or unknown; `opted_in_by` is Annotation, Shim or
    null; `state` is Unknown, NotOptedIn, InvalidAnnotation, Waiting, Provisioning, Verifying, Ready or Failed. Unknown
    are nodes without annotation if Shims cannot be read. `counts` has every state, and counts every node.
    """
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events)
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if watched:
            asyncio.run(_watch(settings, Shown(output, no_headers, output_watch_events), every=every))
            return
        found = asyncio.run(read_cluster(settings, lambda kube: _read(kube, settings)))
        show(found, output, every=every, no_headers=no_headers)


async def _read(kube: Kube, settings: ClientSettings) -> Rollout:
    reading = Reading(kube, settings.namespace)
    pending = pending_cause(reading, settings.installer_namespace)
    rollout, lines = await asyncio.gather(read_rollout(reading, settings.installer_namespace), pending)
    rows = with_causes(rollout.rows, lines)
    return replace(rollout, rows=rows, notes=tuple(line.text for line in reading.notes))


async def _watch(settings: ClientSettings, shown: Shown, *, every: bool) -> None:
    async def read(kube: Kube) -> Listed[NodeRow]:
        rollout = await _read(kube, settings)
        return Listed([row for row in rollout.rows if every or row.concern], rollout.notes)

    view: View[NodeRow] = View(
        key=lambda row: row.name,
        table=lambda rows: table_of(rows, wide=shown.output is Format.WIDE),
        document=NodeRow.document,
        name=lambda row: printed_name("node", row.name),
    )
    await watch_cluster(settings, read, view, shown)


def show(rollout: Rollout, output: Format, *, every: bool, no_headers: bool = False) -> None:
    """Print the rows of nodes with an opt-in, or every row."""
    shown = [row for row in rollout.rows if every or row.concern]
    if output.structured:
        counts = {state.value: count for state, count in tally(rollout.rows).items()}
        print_document(output, {"nodes": [row.document() for row in shown], "counts": counts, "notes": rollout.notes})
        return
    for note in rollout.notes:
        print_note(note)
    if output is Format.NAME:
        print_names(printed_name("node", row.name) for row in shown)
        return
    if shown:
        print_result(table_of(shown, wide=output is Format.WIDE), no_headers=no_headers)
    if not no_headers:
        print_result(footer(rollout.rows, shown))


def table_of(rows: Sequence[NodeRow], *, wide: bool = False) -> Table:
    """Return the table of these rows; a narrow terminal folds names and messages, without truncation."""
    more = ("OPTED IN BY", "DIGEST") if wide else ()
    table = make_table("NODE", "OPT-IN", *more, "STATE", "VERIFIED", "ATTEMPT", "MESSAGE", fold={"NODE", "MESSAGE"})
    for row in rows:
        cells = (row.by.lower() or "default", row.digest or _NONE) if wide else ()
        table.add_row(
            Text(row.name),
            row.opt_in,
            *cells,
            Text(row.state.value, style=STYLES[row.state]),
            row.verified or _NONE,
            str(row.attempt) if row.attempt else _NONE,
            Text(_message(row)),
        )
    return table


def _message(row: NodeRow) -> str:
    """Return the message of a row; the reason of a problem that has none, such as a conflict between Shims."""
    problem = row.verdict.health in {Health.DEGRADED, Health.UNKNOWN, Health.SUSPENDED}
    return row.message or (": ".join(filter(None, (row.verdict.reason, row.verdict.message))) if problem else "")


def footer(rows: Sequence[NodeRow], shown: Sequence[NodeRow]) -> str:
    """Return the counts of all nodes, or a hint if there are no rows."""
    if not shown and not tally(rows)[NodeState.UNKNOWN]:
        hint = "opt one in: kubectl annotate node NAME kwasm.sh/kwasm-node=true" if rows else "the cluster has no nodes"
        return f"no node has an opt-in ({hint})"
    return summary(rows)
