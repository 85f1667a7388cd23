"""``trellis events tail``: the facts on the bus, as they are said.

In: flags. Out: a line a fact, for people or as the CloudEvent. Called by the command line. Changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from trellis.bus.tail import TailedEvent, tail
from trellis.durations import parse_seconds
from trellis.events.subjects import FACTS
from trellis.settings import SettingsError
from trellis.telemetry import setup_logging, trace_from
from trellis_bundle.cli_errors import exit_on_error
from trellis_bundle.output import Format, OutputOption, print_json
from trellis_bundle.settings import client_settings

app = typer.Typer(help="The facts that services say.", no_args_is_help=True)

TRACE_SHOWN: Final = 8
_SHOWN: Final = ("verified", "attempt", "reason", "message", "by", "former_uid", "failing")
_VALUE_MAX: Final = 80
_EMPTY: Final = "-"
_OLDEST_SECONDS: Final = 10 * 365 * 86_400.0


@app.callback()
def _group() -> None:
    """Keep ``tail`` a command of its own, as there will be others."""


@app.command("tail")
def tail_events(  # noqa: PLR0913, PLR0917 - options of a command line
    cluster: Annotated[str | None, typer.Option(help="only facts of this cluster")] = None,
    noun: Annotated[str | None, typer.Option(help="only facts about this: node, provision, rollout")] = None,
    since: Annotated[str | None, typer.Option(help="begin with facts at most this old: 30s, 10m, 2h")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="begin with the last so many facts")] = None,
    nats_url: Annotated[str | None, typer.Option(help="the bus [env: TRELLIS_NATS_URL]")] = None,
    output: OutputOption = Format.TABLE,
    json: Annotated[bool, typer.Option("--json", help="the same as -o json")] = False,
) -> None:
    """Follow the facts on the bus until Ctrl-C: old ones if asked for, then new ones.

    A line has time, fact, key, service, the start of the trace id, and what else is worth knowing. JSON: the
    CloudEvent, one a line.
    """
    with exit_on_error():
        settings = client_settings(nats_url=nats_url)
        noun, age = _noun(noun), _age(since)
        setup_logging(log_format="text", level="error")
        show = _as_json if json or output is Format.JSON else _as_line
        events = tail(settings.nats_url, cluster=cluster or settings.cluster, noun=noun, since=age, last=last)
        asyncio.run(_follow(events, show))


async def _follow(events: AsyncIterator[TailedEvent], show: Callable[[TailedEvent], None]) -> None:
    """Show events until there are none, or until SIGINT or SIGTERM, which are the ways to end this."""

    async def show_all() -> None:
        async for event in events:
            show(event)

    showing = asyncio.ensure_future(show_all())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, showing.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await showing


def line_of(event: TailedEvent) -> str:
    """Return a fact as one line for people."""
    envelope = event.event
    data = envelope.get("data")
    trace = trace_from(envelope.get("traceparent"))
    parts = (
        event.stored.astimezone().strftime("%H:%M:%S.%f")[:-3],
        f"{event.noun}.{event.fact}".ljust(19),
        "/".join(event.key) or _EMPTY,
        str(envelope.get("source", "")).rpartition("/")[2] or _EMPTY,
        trace.traceparent.split("-")[1][:TRACE_SHOWN] if trace else _EMPTY,
        _fields(data if isinstance(data, dict) else {}),
    )
    return "  ".join(part for part in parts if part)


def _fields(data: dict[str, Any]) -> str:
    return " ".join(f"{name}={_short(data[name])}" for name in _SHOWN if data.get(name) not in (None, ""))


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    text = text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 1]}…"
    return f'"{text}"' if " " in text else text


def _as_line(event: TailedEvent) -> None:
    print(line_of(event), flush=True)  # noqa: T201 - the command's output


def _as_json(event: TailedEvent) -> None:
    print_json(event.event, lines=True)


def _noun(noun: str | None) -> str | None:
    known = sorted({spec.model.noun for spec in FACTS})
    if noun is not None and noun not in known:
        raise SettingsError(f"--noun: has {noun!r}, needs one of: {', '.join(known)}")
    return noun


def _age(since: str | None) -> timedelta | None:
    if since is None:
        return None
    try:
        return timedelta(seconds=min(parse_seconds(since), _OLDEST_SECONDS))
    except ValueError as error:
        raise SettingsError(f"--since: has {since!r}, {error}") from None
