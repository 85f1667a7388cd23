"""``trellis explain KIND/NAME``: why something is, or is not, as it should be: one page, the whole chain.

In: flags. Out: lines or JSON, and exit status 1 if a step of the chain is not well. Called by the command line. Writes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from service_reflector.views import view_pod, view_service, view_slice
from service_reflector.watch import POD_SELECTOR, SLICE_SELECTOR
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden
from trellis.kube.resources import ENDPOINT_SLICES, EVENTS, HOST_CONFIGS, PODS, SERVICES, Manifest
from trellis.lattice.group_views import view_group
from trellis_bundle.apps import read_apps
from trellis_bundle.cli_errors import EXIT_FAILED, CommandError, exit_on_error
from trellis_bundle.explain_application import MANAGER, AppWorld, explain_application
from trellis_bundle.explain_service import Line, Warned, World, explain_service
from trellis_bundle.gather import connected
from trellis_bundle.mirrors import read_leader, read_views
from trellis_bundle.nodes import ContextOption, KubeconfigOption
from trellis_bundle.output import Format, OutputOption, console, one_line, print_json
from trellis_bundle.settings import ClientSettings, client_settings

KINDS: Final = ("service", "application")


def explain(
    what: Annotated[str, typer.Argument(metavar="KIND/NAME", help=f"KIND is one of: {', '.join(KINDS)}")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="of the object; all, if not given")] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show why an application is as it is, or why its Service has the endpoints it has, or none.

    `application/NAME`: who writes its object, its lattice's groups of hosts, whether Kubernetes and wadm have the same,
    what wadm refuses, and what it says of each scaler. `service/NAME`: whose mirror it is, its lattice's groups of
    hosts, each host and why it is no endpoint, and what was told of the application. Ends with 1 if something is not
    well.
    JSON: `{"ok", "lines": [{"about", "ok", "text"}]}`; `ok` of a line is null for what is neither good nor bad.
    """
    with exit_on_error():
        kind, _, name = what.partition("/")
        if kind not in KINDS or not name:
            message = f"cannot explain {what!r}: write {' or '.join(f'{one}/NAME' for one in KINDS)}"
            raise CommandError(message)
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if kind == "application":
            lines = explain_application(asyncio.run(_look_at_applications(settings, namespace)), name, namespace)
        else:
            lines = explain_service(asyncio.run(_look(settings)), name, namespace)
        _show(lines, output)
        if _trouble(lines):
            raise SystemExit(EXIT_FAILED)


async def _look(settings: ClientSettings) -> World:
    async with connected(settings) as kube:
        services, slices, groups, pods, events, leader = await asyncio.gather(
            read_views(kube, SERVICES, view_service),
            read_views(kube, ENDPOINT_SLICES, view_slice, SLICE_SELECTOR),
            read_views(kube, HOST_CONFIGS, view_group),
            read_views(kube, PODS, view_pod, POD_SELECTOR),
            read_views(kube, EVENTS, view_warning),
            read_leader(kube, settings.namespace),
        )
    return World(services, slices, groups, pods, [one for one in events if one.group], leader)


async def _look_at_applications(settings: ClientSettings, namespace: str | None) -> AppWorld:
    async with connected(settings) as kube:
        apps, groups, services, events, leader = await asyncio.gather(
            read_apps(kube, namespace),
            read_views(kube, HOST_CONFIGS, _whole, namespace=namespace),
            read_views(kube, SERVICES, view_service, namespace=namespace),
            read_views(kube, EVENTS, _whole, namespace=namespace),
            _leader(kube, settings.namespace),
        )
    return AppWorld(apps, groups, services, events, leader)


async def _leader(kube: Kube, namespace: str) -> str | None:
    """Return who leads application_manager, "" for nobody, None if this account may not know."""
    try:
        return await read_leader(kube, namespace, MANAGER)
    except Forbidden:
        return None


def _whole(item: Manifest) -> Manifest:
    return item


def view_warning(event: Manifest) -> Warned:
    """Project an Event; one that is no warning about a group of hosts has no group."""
    about: dict[str, Any] = event.get("involvedObject") or {}
    fits = event.get("type") == "Warning" and about.get("kind") == HOST_CONFIGS.kind
    group = f"{about.get('namespace', '')}/{about.get('name', '')}" if fits else ""
    return Warned(group, str(event.get("reason") or ""), str(event.get("message") or ""))


def _trouble(lines: Sequence[Line]) -> bool:
    """Say whether a step is not well; one host of several that is no endpoint is none of them."""
    return any(line.well is False and line.about != "host" for line in lines)


def _show(lines: Sequence[Line], output: Format) -> None:
    if output is Format.JSON:
        print_json({"ok": not _trouble(lines), "lines": [line.document() for line in lines]})
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for wrap in (False, False, True):
        table.add_column(no_wrap=not wrap, overflow="fold")
    marks = {True: Text("yes", style="green"), False: Text("no", style="bold red"), None: Text("")}
    for line in lines:
        table.add_row(line.about, marks[line.well], Text(one_line(line.text)))
    console().print(table)
