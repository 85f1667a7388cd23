"""``trellis rollout``: the progress of a Shim version on the nodes; pause, resume and rollback.

In: flags. Out: a page, lines, a progress bar or JSON; patches of one Shim. Called by the command line.
Invariant: all data comes from the cluster, never from the bus.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from trellis.config.durations import parse_seconds
from trellis.config.settings import SettingsError
from trellis.provisioning.revisions import Revision
from trellis.read_model.tables.rollout import Phase, RolloutSnapshot, Standing, document, standing_of
from trellis_cli.common.complete import complete_shim
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import EXIT_FAILED, print_error, print_note
from trellis_cli.common.objects import read_object
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import (
    DocumentOption,
    Format,
    NoHeadersOption,
    console,
    make_table,
    print_document,
    print_result,
    print_text,
    yaml_of,
)
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, follow, is_watch, repeated
from trellis_cli.rollout import change as rollout_change
from trellis_cli.rollout.change import Change, change
from trellis_cli.rollout.read import Found, Reader
from trellis_cli.rollout.views import Display, display, page, summary

app = typer.Typer(help="Manage the rollout of a Shim.", no_args_is_help=True)

ShimArgument = Annotated[
    list[str], typer.Argument(metavar="NAME | shim/NAME", help="the Shim", autocompletion=complete_shim)
]


def shim_name(arguments: Sequence[str]) -> str:
    """Return the name of the Shim. Raise SettingsError for other kinds."""
    return read_object(arguments, ("shim",), default="shim").name


@app.command()
def status(
    shim: ShimArgument,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="watch until the rollout is complete or stopped")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="end the watch after this time: 10m; default: never")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Show the rollout of a Shim: its phase, and the stage of each node.

    Ends with 1 if the rollout is halted or degraded. With --watch it ends with 0 once the rollout is complete (or the
    Shim is deleted), and with 1 if it is halted, degraded or paused, or at the timeout. JSON:
    `{"shim", "generation", "revision", "phase", "message", "advice", "desired", "counts": {"Updated": 3, …}, "nodes":
    [{"name", "stage", "attempt", "message"}], "revisions": [{"revision", "created"}], "notes"}`, with --watch one a
    line. `phase` is Complete, Progressing, Paused, Halted, Degraded or Removing; `stage` is Updated, InProgress,
    Failed, Blocked, Waiting or Removing.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        name, seconds = shim_name(shim), _seconds(timeout, watch=watch)
        if watch:
            failed = _watch(settings, name, seconds, output)
        else:
            snapshot = asyncio.run(_read(settings, name)).snapshot
            standing = standing_of(snapshot)
            _show(standing, snapshot, output)
            failed = standing.broken
        if failed:
            raise SystemExit(EXIT_FAILED)


@app.command()
def history(  # noqa: PLR0913, PLR0917 - options of a command line
    shim: ShimArgument,
    revision: Annotated[int | None, typer.Option(min=1, help="print the version of this revision")] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """List the revisions of a Shim, the oldest first.

    A revision is a version of the parts of the spec that are installed on nodes: `fetchStrategy`, `runtimeClass` and
    `containerdRuntimeOptions`. `rollout undo --to-revision` restores one. JSON: `{"shim", "revisions": [{"revision",
    "created", "current", "version"}]}`.
    """
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events, unless={"--revision": revision is not None})
        settings, name = client_settings(kubeconfig=kubeconfig, context=context), shim_name(shim)
        if watched:
            asyncio.run(_watch_history(settings, name, Shown(output, no_headers, output_watch_events)))
            return
        snapshot = asyncio.run(_read(settings, name)).snapshot
        for note in snapshot.notes:
            print_note(note)
        _show_history(name, snapshot, revision, output, no_headers=no_headers)


@app.command()
def pause(
    shim: ShimArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Start no further node; nodes in progress are finished.

    This sets `spec.paused`. A GitOps tool that manages the Shim reverts it at its next sync: pause in the repository
    then. JSON: `{"shim", "changed", "message"}`.
    """
    _change(shim, rollout_change.pause, kubeconfig, context, output)


@app.command()
def resume(
    shim: ShimArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Resume a rollout that is paused, or halted because too many nodes failed.

    The failures so far are acknowledged and their nodes are retried at once; if as many fail again, the rollout halts
    again. JSON as in `rollout pause`.
    """
    _change(shim, rollout_change.resume, kubeconfig, context, output)


@app.command()
def undo(
    shim: ShimArgument,
    to_revision: Annotated[
        int | None, typer.Option(min=1, help="revision to restore; default: the previous one")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Roll back to a previous revision: the installed artifacts and the RuntimeClass, not nodes or limits.

    It is a rollout with the same limits. A GitOps tool that manages the Shim reverts it at its next sync: roll back in
    the repository then. `rollout history` lists the revisions. JSON as in `rollout pause`.
    """
    _change(shim, rollout_change.undo(to_revision), kubeconfig, context, output)


def _seconds(text: str | None, *, watch: bool) -> float | None:
    if text is None:
        return None
    if not watch:
        raise SettingsError("--timeout: needs --watch")
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise SettingsError(f"--timeout: has {text!r}, {error}") from None
    if seconds <= 0:
        raise SettingsError(f"--timeout: has {text!r}, needs more than 0")
    return seconds


async def _read(settings: ClientSettings, name: str) -> Found:
    async with connected(settings) as kube:
        return await Reader(kube, settings, name).read()


def _show(standing: Standing, snapshot: RolloutSnapshot, output: Format) -> None:
    if output.structured:
        print_document(output, document(standing, snapshot))
        return
    for note in snapshot.notes:
        print_note(note)
    print_result(page(standing))


def _show_history(
    name: str, snapshot: RolloutSnapshot, number: int | None, output: Format, *, no_headers: bool
) -> None:
    """Print all revisions, or the version of one.

    Raises:
        CommandError: the revision does not exist.
    """
    found = [revision for revision in snapshot.revisions if number in {None, revision.number}]
    if number is not None and not found:
        known = ", ".join(str(revision.number) for revision in snapshot.revisions) or "none"
        raise CommandError(f'revision {number} of Shim "{name}" not found; known revisions: {known}')
    rows = [_revision_document(item, snapshot) for item in found]
    if output.structured:
        print_document(output, {"shim": name, "revisions": rows})
    elif number is not None:
        print_text(yaml_of(found[0].version).rstrip())
    else:
        print_result(_history_table(rows), no_headers=no_headers)


def _revision_document(revision: Revision, snapshot: RolloutSnapshot) -> dict[str, Any]:
    current = revision == snapshot.current
    described = {"revision": revision.number, "created": revision.created, "current": current}
    return described | {"version": revision.version}


def _history_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = make_table("REVISION", "CREATED", "CURRENT")
    for row in rows:
        table.add_row(str(row["revision"]), str(row["created"]), "yes" if row["current"] else "no")
    return table


async def _watch_history(settings: ClientSettings, name: str, shown: Shown) -> None:
    async with connected(settings) as kube:
        reader = Reader(kube, settings, name)

        async def read() -> Listed[dict[str, Any]]:
            snapshot = (await reader.read()).snapshot
            return Listed([_revision_document(item, snapshot) for item in snapshot.revisions], snapshot.notes)

        view: View[dict[str, Any]] = View(
            key=lambda row: row["revision"], table=_history_table, document=lambda row: row
        )
        await follow(read, view, shown)


def _watch(settings: ClientSettings, name: str, timeout: float | None, output: Format) -> bool:
    """Watch until the end; return whether the rollout failed."""
    with display(output) as shown:
        last = asyncio.run(_follow(settings, name, timeout, shown))
    if last is None:
        if not output.structured:
            print_text(f"Shim {name} is deleted, and no node has it")
        return False
    standing, snapshot = last
    if console().is_terminal and not output.structured:
        _show(standing, snapshot, output)
    if not standing.settled:
        print_error(f"not complete within {timeout:g} s: {summary(standing)}")
    return standing.phase is not Phase.COMPLETE


async def _follow(
    settings: ClientSettings,
    name: str,
    budget: float | None,
    shown: Display,
) -> tuple[Standing, RolloutSnapshot] | None:
    """Return the last state, settled or at the timeout; None if the Shim was removed."""
    until = None if budget is None else time.monotonic() + budget
    last: tuple[Standing, RolloutSnapshot] | None = None
    async with connected(settings) as kube:
        reader = Reader(kube, settings, name)

        async def read() -> RolloutSnapshot | None:
            try:
                return (await reader.read()).snapshot
            except CommandError:
                if last is None or last[0].phase is not Phase.REMOVING:
                    raise
                return None

        async with contextlib.aclosing(repeated(read, until=until)) as snapshots:
            async for snapshot in snapshots:
                last = None if snapshot is None else (standing_of(snapshot), snapshot)
                if last is None:
                    break
                shown.show(*last)
                if last[0].settled:
                    break
    return last


def _change(
    shim: Sequence[str],
    wanted: Callable[[Found], Change],
    kubeconfig: KubeconfigOption,
    context: ContextOption,
    output: Format,
) -> None:
    async def run(settings: ClientSettings) -> Change:
        async with connected(settings) as kube:
            return await change(kube, settings, name, wanted)

    with exit_on_error():
        name = shim_name(shim)
        done = asyncio.run(run(client_settings(kubeconfig=kubeconfig, context=context)))
        if output.structured:
            print_document(output, done.document(name))
        else:
            print_text(done.message)
