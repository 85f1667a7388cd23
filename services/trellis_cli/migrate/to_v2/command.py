"""``trellis migrate to-v2``: converts applications of wasmCloud v1 to objects of v2, applies and compares them.

In: flags, the cluster, with ``--from-wadm`` the NATS of each lattice. Out: manifests or a document on stdout, the
report on stderr. Called by the command line. Invariant: without ``--apply`` nothing is written; no object of v1 is
changed, so that deleting the objects of v2 restores the former state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from trellis.config.errors import SettingsError
from trellis_cli.apps.ask import NoLatticeError
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import EXIT_FAILED, print_note
from trellis_cli.common.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
    LatticeNatsOption,
    NamespaceOption,
    one_namespace,
)
from trellis_cli.common.output import Format, make_table, one_line, print_document, print_manifests, print_result
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.migrate.model.to_v2.comparison import Comparison
from trellis_cli.migrate.model.to_v2.owners import refusals, shared_hosts, targets_of
from trellis_cli.migrate.model.to_v2.report import Conversion
from trellis_cli.migrate.to_v2.apply import Result, apply
from trellis_cli.migrate.to_v2.check import check
from trellis_cli.migrate.to_v2.read import Found, read


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments. ``output``: None for the default of the mode."""

    namespace: str | None
    from_wadm: bool
    nats: str | None
    apply: bool
    check: bool
    path: str
    output: Format | None


def _document_format(value: Format | None) -> Format | None:
    if value is not None and not value.structured:
        raise typer.BadParameter(f"{value.value!r} is for tables; use one of: yaml, json")
    return value


OutputOption = Annotated[
    Format | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="yaml or json; by default the manifests as YAML, with --apply and --check a table",
        callback=_document_format,
    ),
]


def to_v2(  # noqa: PLR0913, PLR0917 - options of a command line
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    from_wadm: Annotated[bool, typer.Option("--from-wadm", help="read the applications from wadm")] = False,
    nats: LatticeNatsOption = None,
    write: Annotated[bool, typer.Option("--apply", help="write the objects, beside those of v1")] = False,
    compare: Annotated[bool, typer.Option("--check", help="compare the HTTP answers of v1 and v2")] = False,
    path: Annotated[str, typer.Option("--path", metavar="PATH", help="path of the requests of --check")] = "/",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Convert applications of wasmCloud v1 to workloads of wasmCloud v2.

    Prints WorkloadDeployments, Services and ConfigMaps for `kubectl apply -f -`, and on stderr one line for each part
    that does not translate, with its replacement. Values of Secrets are not read. `--apply` writes the objects by
    server-side apply and prints the command that removes them; it changes no object of v1, no object of another owner,
    and no field of another manager. `--check` sends the same GET request to the reflected Service of v1 and to the
    endpoints of v2, inside the cluster, and ends with 1 if status, Content-Type, Content-Encoding, Location or body
    differ, a side does not answer within 10 s, or both answer 5xx, or 404 without a body. Redirects are not followed.
    Also ends with 1 if an application cannot be converted, or a lattice does not answer.

    JSON: `{"ok", "objects": […], "applications": [{"namespace", "application", "ok", "report": [{"part", "reason",
    "message", "instead", "ways"}], "parts": {part: object}}], "unread": […]}`; with `--apply` `{"ok", "applied":
    [{"object", "done"}], "remove": […], "leftovers": […], "orphans": […], "applications", "unread"}`; with `--check`
    `{"ok", "routes": [{"application", "host", "path", "v1", "v2", "difference"}], "applications", "unread"}`.
    """
    with exit_on_error(NoLatticeError):
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        wanted = one_namespace(namespace, all_namespaces=all_namespaces)
        options = Options(wanted, from_wadm, nats, write, compare, path, output)
        _require_valid(options)
        if not asyncio.run(_run(settings, options)):
            raise SystemExit(EXIT_FAILED)


def _require_valid(options: Options) -> None:
    """Raise SettingsError if options exclude each other."""
    if options.apply and options.check:
        raise SettingsError("--check: --apply is given too, use one of them")
    if options.nats and not options.from_wadm:
        raise SettingsError("--nats needs --from-wadm")
    if not options.path.startswith("/") or not options.path.isprintable():
        raise SettingsError(f"--path: has {options.path!r}, needs a path such as /health")


async def _run(settings: ClientSettings, options: Options) -> bool:
    """Run the command; return whether everything was converted, and with ``--check`` whether the answers are equal."""
    async with connected(settings) as kube:
        found = await read(kube, options.namespace, options.nats, from_wadm=options.from_wadm)
        targets = targets_of(found.conversions)
        shared = [*refusals(targets, [None] * len(targets)), *shared_hosts(found.conversions)]
        _warn(found, shared)
        ok = not found.unread and not shared and all(item.valid for item in found.conversions)
        if options.check:
            compared = await check(kube, found.conversions, found.services, options.path)
            ok = ok and not any(item.difference for item in compared)
            _show_comparisons(compared, found, options.output, ok=ok)
        elif options.apply:
            result = await apply(kube, found.conversions, options.namespace, complete=not found.unread)
            _show_applied(result, found, options.output, ok=ok)
        else:
            _show_objects(found, options.output, ok=ok)
    return ok


def _warn(found: Found, shared: Sequence[str]) -> None:
    """Print what could not be read, and the objects and Host headers that two applications share."""
    for text in (*found.notes, *found.unread, *shared):
        print_note(one_line(text))
    if not found.conversions:
        print_note("no applications to convert")


def _report(conversions: Sequence[Conversion]) -> None:
    """Print the report: one line for each part that does not translate."""
    for conversion in conversions:
        for line in conversion.lines:
            place = f"{conversion.key} {line.part}".rstrip()
            instead = f" {line.instead}" if line.instead else ""
            print_note(one_line(f"{place}: {line.reason}: {line.message}.{instead}"))


def _show_objects(found: Found, output: Format | None, *, ok: bool) -> None:
    objects = [item for conversion in found.conversions for item in conversion.objects]
    if output is Format.JSON:
        print_document(output, {"ok": ok, "objects": objects, **_documents(found)})
        return
    _report(found.conversions)
    if objects:
        print_manifests(Format.YAML, objects)


def _show_applied(result: Result, found: Found, output: Format | None, *, ok: bool) -> None:
    if output is not None:
        applied = [item.document() for item in result.applied]
        commands = {
            "remove": list(result.remove),
            "leftovers": list(result.leftovers),
            "orphans": list(result.orphans),
        }
        print_document(output, {"ok": ok, "applied": applied, **commands, **_documents(found)})
        return
    _report(found.conversions)
    table = make_table("OBJECT", "RESULT", fold={"OBJECT"})
    for item in result.applied:
        table.add_row(Text(item.object), Text(item.done))
    if result.applied:
        print_result(table)
    for command in result.leftovers:
        print_note(f"an object of a former run is not used any more: {command}")
    for command in result.orphans:
        print_note(f"applications of former runs were not found; if they are deleted, remove their objects: {command}")
    for command in result.remove:
        print_result(Text(f"to remove: {command}"))


def _show_comparisons(compared: Sequence[Comparison], found: Found, output: Format | None, *, ok: bool) -> None:
    if output is not None:
        routes = [item.document() for item in compared]
        print_document(output, {"ok": ok, "routes": routes, **_documents(found)})
        return
    _report([item for item in found.conversions if not item.valid])
    table = make_table("APPLICATION", "HOST", "V1", "V2", "DIFFERENCE", fold={"APPLICATION", "HOST", "DIFFERENCE"})
    for item in compared:
        style = "bold red" if item.difference else "green"
        statuses = [Text(str(side.status) if not side.problem else "-") for side in (item.v1, item.v2)]
        table.add_row(
            Text(one_line(item.application)),
            Text(one_line(item.host)),
            *statuses,
            Text(one_line(item.difference) or "none", style=style),
        )
    if compared:
        print_result(table)
    if without := [item.key for item in found.conversions if item.valid and not item.routes]:
        print_note(one_line(f"not compared, because they have no HTTP route: {', '.join(without)}"))


def _documents(found: Found) -> dict[str, Any]:
    return {"applications": [item.document() for item in found.conversions], "unread": list(found.unread)}
