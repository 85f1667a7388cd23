"""``trellis crds``: checks and applies the CRDs of Trellis.

In: flags, the cluster. Out: a table or JSON; with ``apply``, CRDs. Called by the command line. Invariants: nothing is
written before all requested CRDs are checked; custom resources are never changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.crds.kinds import BY_DIRECTORY, Kind, make_definition
from trellis.kube.client import Kube
from trellis.kube.crd_ownership import ADOPTABLE, REFUSED, Place, Standing, adopted
from trellis.kube.errors import AlreadyExists, Conflict, NotFound, Unavailable
from trellis.kube.reader import Selection
from trellis.kube.resources import DEFINITIONS, Manifest, Resource
from trellis.read_model.reading.served import look_at
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected, read_cluster
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.objects import KINDS, read_kind
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, NoHeadersOption, make_table, print_document, print_result
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, is_watch, watch_cluster

OURS: Final[tuple[Kind, ...]] = tuple(kind for kinds in BY_DIRECTORY.values() for kind in kinds)
SERVED_SECONDS: Final = 30.0
"""Timeout until the API server serves a kind whose CRD it has accepted."""
_POLL_SECONDS: Final = 0.1
_ROUNDS: Final = 5

app = typer.Typer(help="Check and apply the CRDs of Trellis.", no_args_is_help=True)

KindsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KIND", help=f"of {', '.join(kind.plural for kind in OURS)}; default: all"),
]


@app.command()
def check(  # noqa: PLR0913, PLR0917 - options of a command line
    kinds: KindsArgument = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """Show the owner and the state of each CRD.

    Ends with 1 if a CRD is not managed by Trellis or not served. JSON: `{"ok", "crds": [{"name", "state",
    "message"}]}`; `state` is Missing, Current, Outdated, Former (of the operator that Trellis replaces), UnknownOwner,
    KubeVela, OtherVersion, or Hidden (an APIService serves the group in its place).
    """
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events)
        settings, wanted = client_settings(kubeconfig=kubeconfig, context=context), chosen(kinds)
        if watched:
            asyncio.run(_watch(settings, wanted, Shown(output, no_headers, output_watch_events)))
            return
        standings = asyncio.run(read_cluster(settings, lambda kube: _standings(kube, wanted)))
        _show(standings, output, no_headers=no_headers)
        if not _ok(standings):
            raise SystemExit(EXIT_FAILED)


@app.command()
def apply(
    kinds: KindsArgument = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="take over CRDs of another owner; never KubeVela's applications")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Apply the CRDs of this version of Trellis, and wait until they are served.

    All CRDs are checked first: if one has another owner, or is hidden by another API server, none is applied. JSON as
    of `trellis crds check`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        _show(asyncio.run(_apply(settings, chosen(kinds), adopt=adopt)), output, no_headers=no_headers)


def chosen(kinds: Sequence[str] | None) -> list[Kind]:
    """Return the named kinds, by any name of a kind; all if none is named.

    Raises:
        SettingsError: a kind is unknown.
    """
    known = {read_kind(kind.name, KINDS): kind for kind in OURS}
    named = {known[read_kind(word, known)].name for word in kinds or ()}
    return [kind for kind in OURS if not named or kind.name in named]


async def _standings(kube: Kube, kinds: Sequence[Kind]) -> list[Standing]:
    return [item for _, item, _ in await _look(kube, kinds)]


async def _watch(settings: ClientSettings, kinds: Sequence[Kind], shown: Shown) -> None:
    async def read(kube: Kube) -> Listed[Standing]:
        return Listed(await _standings(kube, kinds))

    view: View[Standing] = View(key=lambda item: item.name, table=_table_of, document=Standing.document)
    await watch_cluster(settings, read, view, shown)


async def _apply(settings: ClientSettings, kinds: Sequence[Kind], *, adopt: bool) -> list[Standing]:
    """Apply the CRDs, wait until they are served, and return their state after that.

    Raises:
        CommandError: a CRD may not be applied, is not served in time, or another client writes it continuously.
        KubeError: an object cannot be read or written.
    """
    async with connected(settings) as kube:
        for _ in range(_ROUNDS):
            found = await _look(kube, kinds)
            refused = [
                item for _, item, _ in found if item.place in REFUSED and not (adopt and item.place in ADOPTABLE)
            ]
            if refused:
                reasons = "; ".join(item.message for item in refused)
                raise CommandError(f"nothing was applied: {reasons}")
            try:
                for kind, standing, definition in found:
                    await _write(kube, kind, standing, definition)
            except (AlreadyExists, Conflict, NotFound):
                continue  # written by another client
            await asyncio.gather(*(await_served(kube, kind) for kind in kinds))
            return await _standings(kube, kinds)
        raise CommandError("another client changes these CRDs continuously: rerun the command")


async def _look(kube: Kube, kinds: Sequence[Kind]) -> list[tuple[Kind, Standing, Manifest | None]]:
    return list(await asyncio.gather(*(look_at(kube, kind) for kind in kinds)))


async def _write(kube: Kube, kind: Kind, standing: Standing, definition: Manifest | None) -> None:
    if definition is None:
        await kube.create(DEFINITIONS, make_definition(kind))
    elif standing.place is not Place.CURRENT:
        await kube.replace(DEFINITIONS, adopted(kind, definition))


async def await_served(kube: Kube, kind: Kind) -> None:
    """Wait until objects of a kind can be listed: the API server accepts a CRD shortly before it serves the kind.

    A deleted CRD is still served briefly, so the status of its successor has to report it as established too.

    Raises:
        CommandError: it is not served within 30 s.
        KubeError: objects cannot be listed, or the CRD cannot be read.
    """
    res = Resource(kind.group, kind.version, kind.plural, kind.model.__name__, namespaced=kind.scope == "Namespaced")
    deadline = time.monotonic() + SERVED_SECONDS
    while True:
        reason = ""
        try:
            async with contextlib.aclosing(kube.pages(Selection(res), limit=1)) as pages:
                await anext(pages)
        except (NotFound, Unavailable) as error:
            reason = str(error)
        _, standing, _ = await look_at(kube, kind)
        reason = standing.message or reason
        if not reason:
            return
        if time.monotonic() > deadline:
            raise CommandError(f"CRD {kind.name} is not served: {reason}")
        await asyncio.sleep(_POLL_SECONDS)


def _ok(standings: Sequence[Standing]) -> bool:
    return all(standing.place is Place.CURRENT and not standing.message for standing in standings)


def _show(standings: Sequence[Standing], output: Format, *, no_headers: bool) -> None:
    if output.structured:
        print_document(output, {"ok": _ok(standings), "crds": [standing.document() for standing in standings]})
        return
    print_result(_table_of(standings), no_headers=no_headers)


def _table_of(standings: Sequence[Standing]) -> Table:
    table = make_table("CRD", "STATE", "MESSAGE", fold={"MESSAGE"})
    for standing in standings:
        style = "green" if standing.place is Place.CURRENT else "bold red" if standing.place in REFUSED else "yellow"
        table.add_row(standing.name, Text(standing.place.value, style=style), Text(standing.message))
    return table
