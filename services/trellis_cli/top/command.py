"""``trellis top``: nodes, Shims, groups, hosts, applications, Services, controllers and Wasm pods, live with reasons.

Also hosts and WorkloadDeployments of wasmCloud v2. In: flags, watches with the permissions of the kubeconfig's user,
heartbeats. Out: a screen, tables or JSON. Called by the command line. Writes nothing. Invariants: it shows the data of
the console; forbidden resources are reported as notes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.live import Live
from rich.text import Text

from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.lattice.connection.host_nats import host_nats
from trellis.lattice.follow.heartbeats import heartbeats_of
from trellis.read_model.live.live_model import LiveModel, Pace, all_parts
from trellis.read_model.live.watching import Place
from trellis.v2.timings import V2Timings
from trellis_cli.common.complete import complete_namespace, complete_word
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import EXIT_FAILED, print_note
from trellis_cli.common.objects import printed_name, read_kind
from trellis_cli.common.options import AllNamespacesOption, ContextOption, KubeconfigOption
from trellis_cli.common.output import (
    Format,
    NoHeadersOption,
    OutputOption,
    console,
    print_document,
    print_names,
    print_result,
)
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.top.keys import Screen, listening, press
from trellis_cli.top.model import (
    SHEETS,
    Entities,
    Kind,
    Wanted,
    awaited,
    chosen,
    difference,
    lacking,
    named_kind,
    notes,
    rows,
    sheets,
    sorts,
    unread,
)
from trellis_cli.top.views import screen_of, sheet_of

_PACE: Final = Pace(0.1, 20_000)
_REDRAW_SECONDS: Final = 1.0
"""Maximum seconds between two draws: the terminal size or the reachability of the API server can change."""
_ONCE_SECONDS: Final = 30.0
_HEARTBEATS: Final = V2Timings()
SHEET_KINDS: Final = {sheet.of: kind for kind, sheet in SHEETS.items()}


@dataclass(frozen=True, slots=True)
class Arguments:
    """Selection of the command. ``kind``: None means all."""

    kind: Kind | None
    namespaces: tuple[str, ...]
    wanted: Wanted

    @property
    def kinds(self) -> Sequence[Kind]:
        """The sheets."""
        return tuple(Kind) if self.kind is None else (self.kind,)


def top(  # noqa: PLR0913, PLR0917 - a command's flags
    kind: Annotated[
        str | None,
        typer.Argument(
            help=f"kind to show first; without a terminal, the only one: {', '.join(SHEET_KINDS)}",
            autocompletion=complete_word(SHEET_KINDS),
        ),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAMESPACE",
            help="namespace of the objects (repeatable); default: all",
            autocompletion=complete_namespace,
        ),
    ] = None,
    all_namespaces: AllNamespacesOption = False,
    terms: Annotated[
        str, typer.Option("--filter", metavar="WORDS", help="only lines that contain all these words")
    ] = "",
    sort: Annotated[str, typer.Option(metavar="COLUMN", help="heading to sort by")] = "health",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="reverse the order")] = False,
    once: Annotated[bool, typer.Option("--once", help="print once and end")] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Watch nodes, Shims, hosts, applications and Services.

    Also host groups, controllers, owners of Wasm pods, and hosts and WorkloadDeployments of wasmCloud v2. It shows
    the data of the console in a terminal, with the permissions of the kubeconfig's user. Without a terminal it prints
    once. Ends with 1 if the KIND cannot be read completely. JSON with --once:
    `{"entities": {ID: {…}}, "lacking": [{"part", "namespace", "message", "do"}]}`; without it a line per change:
    `{"set": {ID: {…}}, "deleted": [ID]}`.
    """
    with exit_on_error():
        sheet = SHEET_KINDS[read_kind(kind, SHEET_KINDS)] if kind else None
        if namespace and all_namespaces:
            raise SettingsError("--all-namespaces: --namespace is given too, use one of them")
        arguments = Arguments(sheet, tuple(namespace or ()), Wanted(_column(sort, sheet), reverse, terms))
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if output.structured and not once:
            asyncio.run(_follow(settings, arguments, output))
        elif once or output is Format.NAME or not (sys.stdin.isatty() and sys.stdout.isatty()):
            _print(asyncio.run(_read(settings, arguments)), arguments, output, no_headers=no_headers)
        else:
            asyncio.run(_watch(settings, arguments))


def _column(sort: str, kind: Kind | None) -> str:
    known = sorts(kind) if kind else list(dict.fromkeys(name for item in Kind for name in sorts(item)))
    if sort.lower() not in known:
        raise SettingsError(f"--sort: has {sort!r}, needs one of {', '.join(known)}")
    return sort.lower()


@asynccontextmanager
async def _looking(settings: ClientSettings, arguments: Arguments) -> AsyncIterator[tuple[Kube, LiveModel]]:
    """Run all watches during the block. Raise KubeError if the API server does not respond at the start."""
    async with connected(settings) as kube:
        await kube.probe()
        parts = all_parts(Place(settings.namespace, settings.installer_namespace))
        host_nats(settings)  # a file that cannot be used is an error of the command
        heartbeats = heartbeats_of(settings, "trellis-command-line")
        live_model = LiveModel(kube, parts, arguments.namespaces, _PACE, heartbeats)
        running = [asyncio.create_task(live_model.run())]
        running += [asyncio.create_task(heartbeats.run())] if heartbeats is not None else []
        try:
            yield kube, live_model
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _read(settings: ClientSettings, arguments: Arguments) -> Entities:
    """Return all entities, once everything that this account may read has been read."""
    async with _looking(settings, arguments) as (kube, live_model):
        try:
            async with asyncio.timeout(_ONCE_SECONDS):
                while unread(live_model.journal.entities):
                    await live_model.changes.next.wait()
        except TimeoutError:
            left = ", ".join(unread(live_model.journal.entities))
            raise CommandError(f"not read within {_ONCE_SECONDS:.0f} s: {left}; {_trouble(kube)}") from None
        if settings.v2_nats is not None and {Kind.V2_HOST_GROUPS, Kind.V2_HOSTS, Kind.V2_DEPLOYMENTS} & {
            *arguments.kinds
        }:
            with contextlib.suppress(TimeoutError):  # a host without one is shown as such
                async with asyncio.timeout(_HEARTBEATS.heartbeat + _HEARTBEATS.slack):
                    while awaited(live_model.journal.entities):
                        await live_model.changes.next.wait()
        return dict(live_model.journal.entities)


def _print(entities: Entities, arguments: Arguments, output: Format, *, no_headers: bool) -> None:
    missing = lacking(arguments.kinds, entities)
    if output.structured:
        print_document(output, {"entities": chosen(arguments.kinds, entities, arguments.wanted), "lacking": missing})
    elif output is Format.NAME:
        for kind in arguments.kinds:
            found = rows(kind, entities, arguments.wanted)
            print_names(printed_name(named_kind(row.id), row.id.rpartition("/")[2]) for row in found)
    else:
        lines: dict[str, None] = {}
        for kind in arguments.kinds if arguments.kind is not None else sheets(entities):
            lines |= dict.fromkeys(notes(kind, entities))
            if arguments.kind is None and not rows(kind, entities, arguments.wanted):
                continue  # among all sheets, empty ones are omitted
            if arguments.kind is None:
                print_result(Text(f"{kind.value}:", style="bold"))
            print_result(sheet_of(kind, entities, arguments.wanted), no_headers=no_headers)
        for note in lines:
            print_note(note)
    if arguments.kind is not None and missing:
        raise SystemExit(EXIT_FAILED)


async def _follow(settings: ClientSettings, arguments: Arguments, output: Format) -> None:
    """Print each change, starting with the complete state."""
    async with _looking(settings, arguments) as (_, live_model):
        before: Entities = {}
        started = False
        while True:
            change, entities = live_model.changes.next, live_model.journal.entities
            if started or not unread(entities):
                after = chosen(arguments.kinds, entities, arguments.wanted)
                changed, deleted = difference(before, after)
                if changed or deleted or not started:
                    print_document(output, {"set": changed, "deleted": deleted}, lines=True)
                before, started = after, True
            await change.wait()


async def _watch(settings: ClientSettings, arguments: Arguments) -> None:
    screen: Screen | None = Screen(arguments.kind or Kind.NODES, arguments.wanted)
    pressed: asyncio.Queue[list[str]] = asyncio.Queue()
    out = console()
    async with _looking(settings, arguments) as (kube, live_model):
        with (
            Live(console=out, screen=True, auto_refresh=False) as live,
            listening(sys.stdin.fileno(), pressed.put_nowait),
        ):
            while screen is not None:
                change, entities = live_model.changes.next, live_model.journal.entities
                drawn = screen_of(screen, entities, out.size.height, trouble=_trouble(kube))
                live.update(drawn, refresh=True)
                for key in await _until(change, pressed):
                    ids = [row.id for row in rows(screen.kind, entities, screen.wanted)]
                    screen = press(screen, key, ids, sheets(entities))
                    if screen is None:
                        break


async def _until(change: asyncio.Event, pressed: asyncio.Queue[list[str]]) -> list[str]:
    """Return the pressed keys; none if there is new data to draw, or at the timeout."""
    waits = [asyncio.create_task(change.wait()), asyncio.create_task(pressed.get())]
    try:
        await asyncio.wait(waits, timeout=_REDRAW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        return waits[1].result() if waits[1].done() else []  # type: ignore[return-value]  # what the queue holds
    finally:
        for wait in waits:
            wait.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await wait


def _trouble(kube: Kube) -> str:
    reasons = [reason for reason in kube.health.readiness().reasons if "has not been ready yet" not in reason]
    return f"data may be stale: {reasons[0]}" if reasons else ""
