"""``trellis apps history`` and ``trellis apps rollback``: the versions of an application.

In: flags, the object, responses of wadm. Out: a table or JSON; for a rollback one write of the object, by the field
manager of the user. Called by the command line. Invariants: wadm is changed only by application_manager, not here; the
written manifest is exactly a version in wadm; the write has the resourceVersion of the read object.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, Forbidden, NotFound
from trellis.kube.resources import APPLICATIONS, Manifest
from trellis.lattice.connection.lattice_connection import NatsUnavailableError
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import Version, WadmRefusedError
from trellis.lattice.wadm.client import Wadm
from trellis.read_model.reading.applications import read_apps
from trellis.read_model.reading.leaders import read_leadership
from trellis.read_model.tables.apps import VersionRow, application_of, history_of, row_of
from trellis_cli.apps.ask import NoLatticeError, address_of, asking, group_of, read_groups
from trellis_cli.apps.model import Rollback, RollbackError, gitops_of, plan_rollback, target_of
from trellis_cli.common.complete import complete_application
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import print_note
from trellis_cli.common.objects import ObjectName, read_object
from trellis_cli.common.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
    LatticeNatsOption,
    NamespaceOption,
    one_namespace,
)
from trellis_cli.common.output import (
    DocumentOption,
    Format,
    NoHeadersOption,
    make_table,
    one_line,
    print_document,
    print_result,
)
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, is_watch, watch_cluster

MANAGER: Final = "application-manager"
_EXPECTED: Final = (NatsUnavailableError, LatticeDataError, WadmRefusedError, NoLatticeError, RollbackError)

NameArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME | application/NAME",
        help="the object, or the application in wadm",
        autocompletion=complete_application,
    ),
]


def history(  # noqa: PLR0913, PLR0917 - options of a command line
    name: NameArgument,
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    live: Annotated[bool, typer.Option("--live", help="query wadm, not the status of the object")] = False,
    nats: LatticeNatsOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """List the versions of an application, the oldest first.

    Versions `overridden-…` keep a change that was overridden when both sides had changed. JSON: `{"namespace", "name",
    "versions": [{"version", "deployed", "shown", "note"}]}`.
    """
    with exit_on_error(*_EXPECTED):
        live = live or nats is not None
        watched = is_watch(watch=watch, events=output_watch_events, unless={"--live or --nats": live})
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        wanted = app_of(name, one_namespace(namespace, all_namespaces=all_namespaces))
        if watched:
            asyncio.run(_watch_history(settings, wanted, Shown(output, no_headers, output_watch_events)))
            return
        item, rows = asyncio.run(_history(settings, wanted, live=live, nats=nats))
        _show_history(item, rows, output, no_headers=no_headers)


def rollback(  # noqa: PLR0913, PLR0917 - options of a command line
    name: NameArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="version to restore; default: the previous one")
    ] = None,
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    force: Annotated[bool, typer.Option("--force", help="also if a GitOps tool or Helm manages it")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only print the changes")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    nats: LatticeNatsOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Roll an Application back to a version of wadm; application_manager then deploys that version.

    The object keeps the field manager of the user's tool. If Argo CD, Flux or Helm manages it, --force is needed,
    because they would revert it. JSON: `{"namespace", "name", "from", "to", "changes", "by", "done"}`.
    """
    with exit_on_error(*_EXPECTED):
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        wanted = app_of(name, one_namespace(namespace, all_namespaces=all_namespaces))
        arguments = Arguments(wanted.name, wanted.namespace, to, nats, force, dry_run, yes, output)
        asyncio.run(_rollback(settings, arguments))


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments."""

    name: str
    namespace: str | None
    to: str | None
    nats: str | None
    force: bool
    dry_run: bool
    yes: bool
    output: Format


def app_of(arguments: Sequence[str], namespace: str | None) -> ObjectName:
    """Return the Application that the arguments name. Raise SettingsError for another kind."""
    return read_object(arguments, ("application",), namespace, default="application")


async def find_app(kube: Kube, name: str, namespace: str | None) -> Manifest:
    """Return the Application with a name, its own or the one in wadm.

    Raises:
        CommandError: there is none, or several.
        KubeError: they could not be read.
    """
    items = await read_apps(kube, namespace)
    found = [item for item in items if item["metadata"]["name"] == name]
    found = found or [item for item in items if application_of(item["metadata"]) == name]
    place = f"namespace {namespace}" if namespace else "any namespace"
    if not found:
        raise CommandError(f'Application "{name}" not found in {place}; see `trellis apps`')
    if len(found) > 1:
        where = ", ".join(sorted(item["metadata"]["namespace"] for item in found))
        raise CommandError(f'several Applications "{name}", in namespaces {where}; use --namespace')
    return found[0]


async def _history(
    settings: ClientSettings, wanted: ObjectName, *, live: bool, nats: str | None
) -> tuple[Manifest, list[VersionRow]]:
    async with connected(settings) as kube:
        item = await find_app(kube, wanted.name, wanted.namespace)
        if not live:
            return item, history_of(item)
        async with await _wadm(kube, item, nats) as wadm:
            return item, history_of(item, await _versions(wadm, item))


async def _watch_history(settings: ClientSettings, wanted: ObjectName, shown: Shown) -> None:
    async def read(kube: Kube) -> Listed[VersionRow]:
        return Listed(history_of(await find_app(kube, wanted.name, wanted.namespace)))

    view: View[VersionRow] = View(key=lambda row: row.version, table=_table_of, document=VersionRow.document)
    await watch_cluster(settings, read, view, shown)


async def _wadm(kube: Kube, item: Manifest, nats: str | None) -> AbstractAsyncContextManager[Wadm]:
    namespace = item["metadata"]["namespace"]
    group = group_of(await read_groups(kube, namespace), namespace, row_of(item).lattice)
    return asking(await address_of(kube, group, nats))


async def _versions(wadm: Wadm, item: Manifest) -> tuple[Version, ...]:
    found = await wadm.versions(application_of(item["metadata"]))
    if found is None:
        raise CommandError(f'application "{application_of(item["metadata"])}" not found in wadm')
    return found


def _show_history(item: Manifest, rows: list[VersionRow], output: Format, *, no_headers: bool) -> None:
    metadata = item["metadata"]
    if output.structured:
        about = {"namespace": metadata["namespace"], "name": metadata["name"]}
        print_document(output, about | {"versions": [row.document() for row in rows]})
        return
    if not rows:
        print_result(Text(f"no versions of {metadata['name']} known; try --live"))
        return
    print_result(_table_of(rows), no_headers=no_headers)


def _table_of(rows: Sequence[VersionRow]) -> Table:
    table = make_table("VERSION", "DEPLOYED", "CURRENT", "NOTE", fold={"VERSION", "DEPLOYED", "CURRENT", "NOTE"})
    for row in rows:
        deployed = Text("yes", style="green") if row.deployed else Text("no")
        table.add_row(Text(one_line(row.version)), deployed, "yes" if row.shown else "no", one_line(row.note))
    return table


async def _rollback(settings: ClientSettings, arguments: Arguments) -> None:
    async with connected(settings) as kube:
        item = await find_app(kube, arguments.name, arguments.namespace)
        tool = gitops_of(item)
        if tool and not arguments.force:
            raise CommandError(
                f"{tool} manages {row_of(item).key} and would revert the rollback: roll back there, or use --force"
            )
        async with await _wadm(kube, item, arguments.nats) as wadm:
            version = target_of(history_of(item, await _versions(wadm, item)), arguments.to)
            manifest = await wadm.get(application_of(item["metadata"]), version)
        if manifest is None:
            raise CommandError(f"version {version} not found in wadm")
        plan = await _settled(kube, plan_rollback(item, manifest, version))
        if not arguments.output.structured:
            await _warn_without_leader(kube, settings, plan)
        done = False
        if plan.changes and not arguments.dry_run:
            _agree(plan, arguments)
            try:
                await _write(kube, plan)
            except (Conflict, NotFound):
                raise CommandError(f"{plan.key} was changed or deleted meanwhile: nothing was changed") from None
            done = True
        if arguments.output.structured:
            print_document(arguments.output, plan.document() | {"done": done})
        elif done:
            print_result(Text(f"done: see `trellis apps history {arguments.name}`"))


async def _settled(kube: Kube, plan: Rollback) -> Rollback:
    """Return the plan as server-side apply if that gives exactly the manifest; it keeps fields of other managers."""
    if not plan.changes:
        return plan
    tried = await kube.apply(APPLICATIONS, plan.applied, field_manager=plan.manager, dry_run=True)
    return plan.by_apply() if plan.is_met_by(tried) else plan


async def _write(kube: Kube, plan: Rollback) -> None:
    if plan.apply:
        await kube.apply(APPLICATIONS, plan.applied, field_manager=plan.manager)
    else:
        metadata = plan.applied["metadata"]
        await kube.json_patch(
            APPLICATIONS, metadata["name"], plan.ops, metadata["namespace"], field_manager=plan.manager
        )


def _agree(plan: Rollback, arguments: Arguments) -> None:
    """Ask for confirmation, unless --yes is given.

    Raises:
        CommandError: there is no terminal, or the user declined.
    """
    if arguments.yes:
        return
    if arguments.output.structured or not sys.stdin.isatty():
        raise CommandError("nothing was changed: use --yes or --dry-run without a terminal")
    if not typer.confirm(f"Give {plan.key} the manifest of version {plan.to}?", err=True):
        raise CommandError("nothing was changed")


async def _warn_without_leader(kube: Kube, settings: ClientSettings, plan: Rollback) -> None:
    print_result(Text(f"{plan.key}: from version {plan.former or '(none)'} to {plan.to}, as {plan.manager}"))
    for change in plan.changes:
        print_result(Text(f"  {one_line(change)}"))
    if not plan.changes:
        print_result(Text("nothing to change: the manifest is the same"))
    if plan.undeployed:
        print_note(f"{plan.key} has the annotation trellis.dev/undeploy, and stays undeployed")
    try:
        lead = await read_leadership(kube, MANAGER, settings.namespace, datetime.now(UTC))
    except NotFound:
        lead = None
    except Forbidden:
        return  # this account may not read the Lease
    if lead is None or lead.age is None or lead.age > lead.duration:
        print_note(f"no replica leads {MANAGER}, so wadm is not updated; start it with `trellis run {MANAGER}`")
