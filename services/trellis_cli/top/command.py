"""``trellis top``: nodes, Shims, groups, hosts, applications, Services and controllers, live and with reasons.

In: flags, the cluster by watches, as whoever the kubeconfig says. Out: a screen, tables or JSON. Called by the command
line. Writes nothing. Invariants: it shows what the console shows to the same person; what RBAC forbids is said where it
would be.
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

from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.read_model.live.audience import Audience, Pace
from trellis.read_model.live.watching import Place, parts_of
from trellis_cli.common.errors import EXIT_FAILED, CommandError, exit_on_error, say
from trellis_cli.common.gather import connected
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import Format, OutputOption, console, print_json
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.top.keys import Screen, listening, press
from trellis_cli.top.model import Entities, Kind, Wanted, chosen, difference, lacking, notes, rows, sorts, unread
from trellis_cli.top.views import screen_of, sheet_of

_PACE: Final = Pace(0.1, 20_000)
_REDRAW_SECONDS: Final = 1.0
"""At the latest: the terminal may have another size by then, or the API server be away."""
_ONCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be shown. ``kind`` None is all of them."""

    kind: Kind | None
    namespaces: tuple[str, ...]
    wanted: Wanted

    @property
    def kinds(self) -> Sequence[Kind]:
        """The sheets."""
        return tuple(Kind) if self.kind is None else (self.kind,)


def top(  # noqa: PLR0913, PLR0917 - a command's flags
    kind: Annotated[Kind | None, typer.Argument(help="to begin with; without a terminal the only one")] = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="to look at (repeatable); all, if not given")
    ] = None,
    words: Annotated[str, typer.Option("--filter", metavar="WORDS", help="which all have to be in a line")] = "",
    sort: Annotated[str, typer.Option(metavar="COLUMN", help="as the headings are called")] = "health",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="the other way round")] = False,
    once: Annotated[bool, typer.Option("--once", help="print what there is, and end")] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Watch nodes, Shims, groups, hosts, applications, Services and controllers: how they are, and why.

    What the console shows, in a terminal, as whoever the kubeconfig says. Without a terminal it prints once. Ends with
    1 if the KIND that was named may not be read whole. JSON with --once: `{"entities": {ID: {…}}, "lacking": [{"part",
    "namespace", "say", "do"}]}`; without it a line for each change: `{"set": {ID: {…}}, "gone": [ID]}`.
    """
    with exit_on_error():
        asked = Asked(kind, tuple(namespace or ()), Wanted(_column(sort, kind), reverse, words))
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if output is Format.JSON and not once:
            asyncio.run(_follow(settings, asked))
        elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            _print(asyncio.run(_read(settings, asked)), asked, output)
        else:
            asyncio.run(_watch(settings, asked))


def _column(sort: str, kind: Kind | None) -> str:
    known = sorts(kind) if kind else list(dict.fromkeys(name for one in Kind for name in sorts(one)))
    if sort.lower() not in known:
        raise SettingsError(f"--sort: has {sort!r}, needs one of {', '.join(known)}")
    return sort.lower()


@asynccontextmanager
async def _looking(settings: ClientSettings, asked: Asked) -> AsyncIterator[tuple[Kube, Audience]]:
    """Have all watches while the block runs; raises KubeError if the API server does not answer to begin with."""
    async with connected(settings) as kube:
        await kube.probe()
        parts = parts_of(Place(settings.namespace, settings.installer_namespace))
        audience = Audience(kube, parts, asked.namespaces, _PACE)
        running = asyncio.create_task(audience.run())
        try:
            yield kube, audience
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _read(settings: ClientSettings, asked: Asked) -> Entities:
    """Return all there is, once everything that may be read was."""
    async with _looking(settings, asked) as (kube, audience):
        try:
            async with asyncio.timeout(_ONCE_SECONDS):
                while unread(audience.journal.entities):
                    await audience.news.next.wait()
        except TimeoutError:
            left = ", ".join(unread(audience.journal.entities))
            raise CommandError(f"not read within {_ONCE_SECONDS:.0f} s: {left}; {_trouble(kube)}") from None
        return dict(audience.journal.entities)


def _print(entities: Entities, asked: Asked, output: Format) -> None:
    missing = lacking(asked.kinds, entities)
    if output is Format.JSON:
        print_json({"entities": chosen(asked.kinds, entities, asked.wanted), "lacking": missing})
    else:
        out = console()
        told: dict[str, None] = {}
        for kind in asked.kinds:
            told |= dict.fromkeys(notes(kind, entities))
            if asked.kind is None and not rows(kind, entities, asked.wanted):
                continue  # of all sheets those that have something are enough
            if asked.kind is None:
                out.print(f"{kind.value}:", style="bold")
            out.print(sheet_of(kind, entities, asked.wanted))
        for note in told:
            say(note)
    if asked.kind is not None and missing:
        raise SystemExit(EXIT_FAILED)


async def _follow(settings: ClientSettings, asked: Asked) -> None:
    """Print each change, the first being all there is once it was read."""
    async with _looking(settings, asked) as (_, audience):
        before: Entities = {}
        begun = False
        while True:
            news = audience.news.next
            entities = audience.journal.entities
            if begun or not unread(entities):
                after = chosen(asked.kinds, entities, asked.wanted)
                changed, gone = difference(before, after)
                if changed or gone or not begun:
                    print_json({"set": changed, "gone": gone}, lines=True)
                before, begun = after, True
            await news.wait()


async def _watch(settings: ClientSettings, asked: Asked) -> None:
    screen: Screen | None = Screen(asked.kind or Kind.NODES, asked.wanted)
    pressed: asyncio.Queue[list[str]] = asyncio.Queue()
    out = console()
    async with _looking(settings, asked) as (kube, audience):
        with (
            Live(console=out, screen=True, auto_refresh=False) as live,
            listening(sys.stdin.fileno(), pressed.put_nowait),
        ):
            while screen is not None:
                news, entities = audience.news.next, audience.journal.entities
                drawn = screen_of(screen, entities, out.size.height, trouble=_trouble(kube))
                live.update(drawn, refresh=True)
                for key in await _until(news, pressed):
                    ids = [row.id for row in rows(screen.kind, entities, screen.wanted)]
                    screen = press(screen, key, ids)
                    if screen is None:
                        break


async def _until(news: asyncio.Event, pressed: asyncio.Queue[list[str]]) -> list[str]:
    """Return the keys that were pressed; none, if there is something new to draw, or it is time to."""
    waits = [asyncio.create_task(news.wait()), asyncio.create_task(pressed.get())]
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
    return f"what is shown may be old: {reasons[0]}" if reasons else ""
