"""``trellis controllers``: Wasm controllers with state, resources and last fault.

In: flags, the cluster. Out: a table or JSON. Called by the command line, ``read_controllers`` by ``trellis status``.
Writes nothing. Invariant: a missing CRD is not a problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import WASM_CONTROLLERS
from trellis.read_model.explain.controller import controller_cause
from trellis.read_model.explain.page import Rank
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.served import list_served
from trellis.read_model.tables.controllers import HOST, ControllerRow, controller_row
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import read_cluster
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.objects import printed_name, read_object
from trellis_cli.common.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
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
from trellis_cli.controllers.model import PART, UNKNOWN, controllers_part
from trellis_cli.status.row import Part, with_leader
from trellis_cli.status.served import list_or_row

STATES: Final = {"Resident": "green", "Suspended": "green", "Cold": "cyan", "Paused": "dim", "Failed": "bold red"}
_NONE: Final = "-"
_KIB: Final = 1024


def controllers(  # noqa: PLR0913, PLR0917 - options of a command line
    ctx: typer.Context,
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    name: Annotated[str | None, typer.Option("--name", help="only this controller; needs --namespace")] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """List Wasm controllers: state, memory, size on disk, calls, wakes, faults.

    Figures are of the hosting process, and up to a minute old. Ends with 1 if one is not ready. JSON: `{"ok",
    "controllers": [{"namespace", "name", "state", "ready", "problem", "resident_bytes", "disk_bytes", "calls", "wakes",
    "wake_p99", "traps", "last_fault": {"kind", "message", "time"}, "module_sha256"}]}`.
    """
    if ctx.invoked_subcommand is not None:
        return
    with exit_on_error():
        namespace = one_namespace(namespace, all_namespaces=all_namespaces)
        if name:
            wanted = read_object([name], ("controller",), namespace, default="controller")
            name, namespace = wanted.name, wanted.namespace
            if not namespace:
                raise SettingsError("--name: needs --namespace")
        watched = is_watch(watch=watch, events=output_watch_events)
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if watched:
            asyncio.run(_watch(settings, namespace, name, Shown(output, no_headers, output_watch_events)))
            return
        rows = asyncio.run(read_cluster(settings, lambda kube: _read(kube, namespace, name)))
        _show(rows, namespace, output, no_headers=no_headers)
        if any(not row.ready and row.state != "Paused" for row in rows):
            raise SystemExit(EXIT_FAILED)


async def read_controllers(kube: Kube, namespace: str) -> Part:
    """Return the row of ``trellis status``; the lease is in ``namespace``.

    Raises:
        KubeError: an object could not be read.
    """
    found = await list_or_row(kube, WASM_CONTROLLERS, PART, UNKNOWN)
    if isinstance(found, Part):
        return found
    if found is None:
        return controllers_part([], "")
    leader = await Reading(kube, namespace).leader(HOST, "")
    causes = {}
    for item in found:
        if (cause := controller_cause(item)) is not None and cause.rank is Rank.CAUSE:
            causes[controller_row(item).key] = cause.text
    part = controllers_part([controller_row(item) for item in found], leader.holder, causes)
    return with_leader(part, leader)


async def _watch(settings: ClientSettings, namespace: str | None, name: str | None, shown: Shown) -> None:
    async def read(kube: Kube) -> Listed[ControllerRow]:
        return Listed(await _read(kube, namespace, name))

    view: View[ControllerRow] = View(
        key=lambda row: row.key,
        table=_table_of,
        document=ControllerRow.document,
        name=lambda row: printed_name("controller", row.name),
        state=ControllerRow.document,
        named=2,
    )
    await watch_cluster(settings, read, view, shown)


async def _read(kube: Kube, namespace: str | None, name: str | None) -> list[ControllerRow]:
    try:
        if name is not None:
            return [controller_row(await kube.get(WASM_CONTROLLERS, name, namespace))]
    except NotFound as error:
        # The 404 for an object names it; the 404 for an unserved kind has no details.
        if f'"{name}"' in error.message:
            raise CommandError(
                f'WasmController "{name}" not found in namespace {namespace}; see `trellis controllers -n {namespace}`'
            ) from None
    found = await list_served(kube, WASM_CONTROLLERS, namespace)
    if found is None:
        raise CommandError(
            'the server does not have the resource type "wasmcontrollers"; define it with `trellis crds apply`'
        )
    return sorted(map(controller_row, found), key=lambda row: row.key)


def _show(rows: Sequence[ControllerRow], namespace: str | None, output: Format, *, no_headers: bool) -> None:
    if output.structured:
        ok = all(row.ready or row.state == "Paused" for row in rows)
        print_document(output, {"ok": ok, "controllers": [row.document() for row in rows]})
        return
    if output is Format.NAME:
        print_names(printed_name("controller", row.name) for row in rows)
        return
    if not rows:
        where = f" in namespace {namespace}" if namespace else ""
        print_result(Text(f"no controllers{where}: create a WasmController"))
        return
    print_result(_table_of(rows), no_headers=no_headers)


def _table_of(rows: Sequence[ControllerRow]) -> Table:
    table = make_table(
        "NAMESPACE",
        "NAME",
        "STATE",
        "MEMORY",
        "DISK",
        "CALLS",
        "WAKES",
        "P99",
        "TRAPS",
        "MESSAGE",
        fold={"NAME", "MEMORY", "DISK", "CALLS", "WAKES", "P99", "TRAPS", "MESSAGE"},
    )
    for row in rows:
        cells: list[Any] = [
            _size(row.figures.get("residentBytes")),
            _size(row.figures.get("snapshotBytes")),
            *(row.figures.get(field, _NONE) for field in ("calls", "wakes", "wakeP99", "traps")),
        ]
        state = Text(one_line(row.state) or _NONE, style=STATES.get(row.state, ""))
        table.add_row(Text(row.namespace), Text(row.name), state, *map(_text, cells), Text(_fault_text(row)))
    return table


def _fault_text(row: ControllerRow) -> str:
    if row.problem or not row.fault:
        return one_line(row.problem)
    return one_line(
        f"last fault {row.fault.get('time', '')}: {row.fault.get('kind', '')}: {row.fault.get('message', '')}"
    )


def _text(cell: Any) -> Text:  # noqa: ANN401 - JSON of a status
    return Text(one_line(str(cell)), justify="right")


def _size(count: Any) -> str:  # noqa: ANN401 - as above
    if not isinstance(count, int) or not count:
        return _NONE
    return f"{count / _KIB:.0f}Ki" if count < _KIB * _KIB else f"{count / _KIB / _KIB:.1f}Mi"
