"""``trellis apps``: applications in Kubernetes, and with ``--live`` compared with wadm.

In: flags, the cluster, for ``--live`` the NATS of each lattice. Out: a table or JSON. Called by the command line.
Writes nothing; ``apps history`` and ``apps rollback`` are separate modules. Invariant: an unreachable lattice has rows
with the error; all other lattices are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.config.errors import SettingsError
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError
from trellis.kube.resources import Manifest
from trellis.lattice.connection.lattice_connection import NatsUnavailableError
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.models import Model
from trellis.lattice.domain.projection import project
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import WadmRefusedError
from trellis.lattice.wadm.client import Wadm
from trellis.read_model.reading.applications import read_apps
from trellis.read_model.tables.apps import AppRow, LiveRow, application_of, compare, row_of, without_reply
from trellis_cli.apps.ask import NoLatticeError, address_of, asking, by_lattice, name_of, read_groups
from trellis_cli.apps.history import history, rollback
from trellis_cli.common.errors import describe_error, exit_on_error
from trellis_cli.common.gather import connected, read_cluster
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.objects import printed_name
from trellis_cli.common.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
    LatticeNatsOption,
    NamespaceOption,
    one_namespace,
)
from trellis_cli.common.output import (
    Format,
    NoHeadersOption,
    OutputOption,
    make_table,
    one_line,
    print_document,
    print_names,
    print_result,
)
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, is_watch, watch_cluster

PHASES: Final = {
    "Deployed": "green",
    "Reconciling": "cyan",
    "Waiting": "cyan",
    "Undeployed": "dim",
    "Failed": "bold red",
    "Unhealthy": "bold red",
}
_NONE: Final = "-"
_CONCURRENT_REQUESTS: Final = 16
_CANNOT: Final = (NatsUnavailableError, LatticeDataError, WadmRefusedError, NoLatticeError, KubeError)

app = typer.Typer(help="List, compare with wadm and roll back applications.")


@app.callback(invoke_without_command=True)
def apps(  # noqa: PLR0913, PLR0917 - options of a command line
    ctx: typer.Context,
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    lattice: Annotated[str | None, typer.Option("--lattice", help="only applications of this lattice")] = None,
    live: Annotated[bool, typer.Option("--live", help="query wadm, and show the differences")] = False,
    nats: LatticeNatsOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """List applications: lattice, phase, deployed version, last sync.

    With `--live` wadm is queried over the NATS of each lattice, with the address and the credentials of its host group;
    it ends with 1 if Kubernetes and wadm differ, or if a wadm does not answer. JSON: `{"apps": [{"namespace", "name",
    "application", "lattice", "phase", "deployed", "synced_seconds_ago", "problem"}]}`; with `--live` `{"ok", "apps":
    [{"lattice", "application", "kubernetes", "wadm": {"status", "deployed", "newest"}, "differences", "unknown"}]}`.
    """
    if ctx.invoked_subcommand is not None:
        return
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events, unless={"--live": live})
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if nats and not live:
            raise SettingsError("--nats: needs --live")
        wanted = Wanted(one_namespace(namespace, all_namespaces=all_namespaces), lattice, nats)
        if live:
            compared = asyncio.run(_live(settings, wanted))
            _show_live(compared, output, no_headers=no_headers)
            if any(row.differences or row.unknown for row in compared):
                raise SystemExit(EXIT_FAILED)
        elif watched:
            asyncio.run(_watch(settings, wanted, Shown(output, no_headers, output_watch_events)))
        else:
            rows = asyncio.run(read_cluster(settings, lambda kube: _read(kube, wanted)))
            _show(rows, output, no_headers=no_headers)


app.command()(history)
app.command()(rollback)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selected applications, and the NATS for queries of wadm."""

    namespace: str | None
    lattice: str | None
    nats: str | None


async def _read(kube: Kube, wanted: Wanted) -> list[AppRow]:
    rows = map(row_of, await read_apps(kube, wanted.namespace))
    return [row for row in rows if wanted.lattice in {None, row.lattice}]


async def _watch(settings: ClientSettings, wanted: Wanted, shown: Shown) -> None:
    async def read(kube: Kube) -> Listed[AppRow]:
        return Listed(await _read(kube, wanted))

    view: View[AppRow] = View(
        key=lambda row: row.key,
        table=lambda rows: _table_of(rows, datetime.now(UTC), wide=shown.output is Format.WIDE),
        document=lambda row: row.document(datetime.now(UTC)),
        name=lambda row: printed_name("application", row.name),
        state=lambda row: replace(row, synced_at=None),
        named=2,
    )
    await watch_cluster(settings, read, view, shown)


async def _live(settings: ClientSettings, wanted: Wanted) -> list[LiveRow]:
    async with connected(settings) as kube:
        items, groups, whole = await _applications_and_groups(kube, wanted.namespace)
        rows: list[LiveRow] = []
        for found in by_lattice(groups).values():
            namespaces, name = {group.namespace for group in found}, name_of(found[0])
            if (wanted.namespace or found[0].namespace) not in namespaces or wanted.lattice not in {None, name}:
                continue
            own = [
                item
                for item in items
                if item["metadata"]["namespace"] in namespaces and row_of(item).lattice in {name, ""}
            ]
            try:
                address = await address_of(kube, found[0], wanted.nats)
                async with asking(address) as wadm:
                    rows += await _compared(wadm, name, own)
            except _CANNOT as error:
                rows += without_reply(name, map(row_of, own), describe_error(error)) or [
                    _unavailable_row(name, describe_error(error))
                ]
    shown = {row.app.key for row in rows if row.app is not None}
    left = [row_of(item) for item in items if row_of(item).key not in shown]
    reason = "no host group of its namespace has its lattice"
    for entry in left:
        if wanted.lattice in {None, entry.lattice}:
            rows += without_reply(entry.lattice, [entry], reason)
    return [row for row in rows if _is_wanted(row, wanted.namespace, whole=whole)]


async def _applications_and_groups(kube: Kube, namespace: str | None) -> tuple[list[Manifest], list[GroupView], bool]:
    """Return Applications, host groups, and whether they are complete: a lattice can belong to several namespaces.

    Raises:
        CommandError, KubeError: as :func:`read_apps`.
    """
    try:
        return *await asyncio.gather(read_apps(kube), read_groups(kube)), True
    except Forbidden:
        if namespace is None:
            raise
        return *await asyncio.gather(read_apps(kube, namespace), read_groups(kube, namespace)), False


def _is_wanted(row: LiveRow, namespace: str | None, *, whole: bool) -> bool:
    """Return whether a row is shown; an application in wadm only can belong to a namespace that was not read."""
    if row.app is None:
        return whole or bool(row.unknown)
    return namespace in {None, row.app.namespace}


def _unavailable_row(lattice: str, reason: str) -> LiveRow:
    return LiveRow(lattice, "", None, None, unknown=reason)


async def _compared(wadm: Wadm, lattice: str, items: Sequence[Manifest]) -> list[LiveRow]:
    """Compare one lattice: deployed version, status, and the manifests of applications that both sides have."""
    models = await wadm.models()
    by_name = {model.name: model for model in models}
    gate = asyncio.Semaphore(_CONCURRENT_REQUESTS)

    async def differs(item: Manifest) -> str:
        model = by_name.get(application_of(item["metadata"]))
        if model is None:
            return ""
        async with gate:
            return await _difference(wadm, item, model)

    differences = await asyncio.gather(*map(differs, items))
    other: Mapping[str, str] = {row_of(item).key: text for item, text in zip(items, differences, strict=True) if text}
    return compare(lattice, map(row_of, items), models, other)


async def _difference(wadm: Wadm, item: Manifest, model: Model) -> str:
    """Return the difference between the manifest of an object and that of its shown version, "" if they are equal."""
    shown = model.deployed or str(((item.get("status") or {}).get("synced") or {}).get("wadmVersion") or model.version)
    there = await wadm.get(model.name, shown)
    if there is None:
        return f"version {shown} not found in wadm"
    try:
        same = project(item, model.name).digest == project(dict(there), model.name).digest
    except LatticeDataError as error:
        return f"cannot be compared: {error}"
    return "" if same else f"the manifest differs from version {shown}"


def _show(rows: Sequence[AppRow], output: Format, *, no_headers: bool) -> None:
    now = datetime.now(UTC)
    if output.structured:
        print_document(output, {"apps": [row.document(now) for row in rows]})
        return
    if output is Format.NAME:
        print_names(printed_name("application", row.name) for row in rows)
        return
    if not rows:
        print_result(Text("no applications: create one with `kubectl apply` or `wash app put`"))
        return
    print_result(_table_of(rows, now, wide=output is Format.WIDE), no_headers=no_headers)


def _table_of(rows: Sequence[AppRow], now: datetime, *, wide: bool) -> Table:
    more = ("APPLICATION",) if wide else ()
    table = make_table(
        *("NAMESPACE", "NAME", *more, "LATTICE", "PHASE", "DEPLOYED", "SYNCED", "MESSAGE"),
        fold={"NAME", "APPLICATION", "LATTICE", "DEPLOYED", "MESSAGE"},
    )
    for row in rows:
        table.add_row(
            Text(row.namespace),
            Text(row.name),
            *((Text(one_line(row.application)),) if more else ()),
            Text(one_line(row.lattice) or _NONE),
            _phase(row.phase),
            Text(one_line(row.deployed) or _NONE),
            _age(row.synced_at, now),
            Text(one_line(row.problem)),
        )
    return table


def _show_live(rows: Sequence[LiveRow], output: Format, *, no_headers: bool) -> None:
    now = datetime.now(UTC)
    if output.structured:
        ok = not any(row.differences or row.unknown for row in rows)
        print_document(output, {"ok": ok, "apps": [row.document(now) for row in rows]})
        return
    if output is Format.NAME:
        print_names(printed_name("application", row.app.name) for row in rows if row.app is not None)
        return
    if not rows:
        print_result(Text("no applications in Kubernetes or wadm"))
        return
    headings = ("LATTICE", "NAME", "KUBERNETES", "WADM", "DIFFERENCE")
    table = make_table(*headings, fold=headings)
    for row in rows:
        here, there = _NONE, _NONE
        if row.app is not None:
            here = f"{row.app.key} {row.app.phase or '?'} {row.app.deployed or _NONE}"
        if row.model is not None:
            there = f"{row.model.status or '?'} {row.model.deployed or _NONE}"
        details = "; ".join(row.differences) or (f"unknown: {row.unknown}" if row.unknown else "")
        style = "bold red" if row.differences else "yellow"
        cells: list[Any] = [one_line(row.lattice), one_line(row.application), one_line(here), one_line(there)]
        table.add_row(*map(Text, cells), Text(one_line(details), style=style))
    print_result(table, no_headers=no_headers)


def _phase(phase: str) -> Text:
    return Text(one_line(phase) or _NONE, style=PHASES.get(phase, ""))


def _age(moment: datetime | None, now: datetime) -> Text:
    if moment is None:
        return Text("never", style="yellow")
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return Text(f"{seconds // size}{unit}")
    return Text(f"{seconds}s")
