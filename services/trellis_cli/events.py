"""``trellis events tail`` and ``replay``: new and stored events on the bus.

In: flags. Out: one line per event, as text or as the CloudEvent. Called by the command line. Changes nothing.
Invariant: a message that is not a CloudEvent gives a line too.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from trellis.bus.streams.tail import NOUN_LATTICE, Selection, TailedEvent, Tally, replay, tail
from trellis.config.settings import SettingsError
from trellis.events.subjects import EVENT_SPECS, ROOT_EVENTS, pattern_filter
from trellis.telemetry import setup_logging
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.messages import EXIT_INTERRUPTED, print_note
from trellis_cli.common.output import DocumentOption, Format, FormerJsonOption, one_line, print_document, print_text
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.times import span

app = typer.Typer(help="Follow and replay the events on the bus.", no_args_is_help=True)

TRACE_SHOWN: Final = 8
_SHOWN: Final[tuple[str, ...]] = (
    "verified",
    "attempt",
    "reason",
    "message",
    "by",
    "former_uid",
    "failing",
    "host_name",
)
_SHOWN_OF_LATTICE: Final[tuple[str, ...]] = ("name", "component_id", "provider_id", "host_id", "error")
_VALUE_MAX: Final = 80
_EMPTY: Final = "-"
NOUNS: Final = tuple(sorted({spec.model.noun for spec in EVENT_SPECS}))
_TRACE_ID = re.compile(r"[0-9a-f]{8,32}")

ClusterOption = Annotated[str | None, typer.Option(help="only events of this cluster [env: TRELLIS_CLUSTER]")]
NounOption = Annotated[str | None, typer.Option(help=f"only events about this: {', '.join(NOUNS)}")]
SubjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="only events on these NATS subjects: 'node.ready.*', '*.failed.>', 'trellis.evt.*.node.>'; in names a "
        "dot is =2E",
    ),
]
TraceOption = Annotated[
    str | None, typer.Option(metavar="ID", help="only events of this trace: its id, or at least its first 8 digits")
]
LatticeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="the forwarded events of this lattice, stored for 7 days, in place of those of Trellis"
    ),
]
SinceOption = Annotated[str | None, typer.Option(help="start: 10m (ago), 2h or 2026-01-31T08:00:00Z")]
UntilOption = Annotated[str | None, typer.Option(help="end, as --since")]
LastOption = Annotated[int | None, typer.Option(min=1, help="start with the last N events")]
NatsOption = Annotated[str | None, typer.Option(help="address of the bus [env: TRELLIS_NATS_URL]")]


@app.command("tail")
def tail_events(  # noqa: PLR0913, PLR0917 - options of a command line
    cluster: ClusterOption = None,
    noun: NounOption = None,
    subject: SubjectOption = None,
    trace: TraceOption = None,
    lattice: LatticeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    last: LastOption = None,
    nats_url: NatsOption = None,
    output: DocumentOption = Format.TABLE,
    former_json: FormerJsonOption = False,
) -> None:
    """Follow the events on the bus until Ctrl-C, or until --until.

    A line has time, event, key, service, the start of the trace id and details. JSON: the CloudEvent, one a line; a
    message that is not a CloudEvent: `{"unreadable": true, "sequence", "time", "subject", "size"}`.
    """
    del former_json
    with exit_on_error():
        settings = _quiet(nats_url)
        selection = _selection(settings, _Given(cluster, noun, subject, trace, since, until, lattice, last))
        if selection.over(datetime.now(UTC)) and since is None and last is None:
            raise SettingsError("--until: is in the past: add --since or --last")
        events = tail(settings.nats_url, selection, credentials=settings.nats_credentials)
        asyncio.run(follow(events, _shower(output)))


@app.command("replay")
def replay_events(  # noqa: PLR0913, PLR0917 - options of a command line
    cluster: ClusterOption = None,
    noun: NounOption = None,
    subject: SubjectOption = None,
    trace: TraceOption = None,
    lattice: LatticeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    original_pace: Annotated[
        bool, typer.Option("--original-pace", help="print events with their original time between them")
    ] = False,
    nats_url: NatsOption = None,
    output: DocumentOption = Format.TABLE,
    former_json: FormerJsonOption = False,
) -> None:
    """Print stored events, the oldest first: all of the stream, or those that the options select.

    Nothing is published. Lines and JSON are those of `trellis events tail`; the number of events is printed on standard
    error.
    """
    del former_json
    with exit_on_error():
        settings, tally = _quiet(nats_url), Tally()
        selection = _selection(settings, _Given(cluster, noun, subject, trace, since, until, lattice))
        credentials = settings.nats_credentials
        events = replay(settings.nats_url, selection, tally, original_pace=original_pace, credentials=credentials)
        ended = asyncio.run(follow(events, _shower(output)))
        print_note(f"{tally.shown} events shown, {tally.looked_at} read{'' if ended else ', then interrupted'}")
        if not ended:
            raise SystemExit(EXIT_INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Given:
    """The filters on the command line."""

    cluster: str | None
    noun: str | None
    subject: str | None
    trace: str | None
    since: str | None
    until: str | None
    lattice: str | None = None
    last: int | None = None


def _quiet(nats_url: str | None) -> ClientSettings:
    setup_logging(log_format="text", level="error")
    return client_settings(nats_url=nats_url)


def _selection(settings: ClientSettings, given: _Given) -> Selection:
    """Return the selection of the options. Raise SettingsError if one is invalid or two contradict each other."""
    if given.subject is not None and given.noun is not None:
        raise SettingsError(f"--noun: is part of --subject, give one of them: --subject '{given.noun}.>'")
    if given.lattice is not None and (given.noun or given.subject) is not None:
        raise SettingsError("--lattice: cannot be used with --noun or --subject")
    if given.trace is not None and given.last is not None:
        raise SettingsError("--last: cannot be used with --trace: use --since")
    since, until = span(given.since, given.until, datetime.now(UTC))
    return Selection(
        cluster=given.cluster or settings.cluster,
        noun=_noun(given.noun),
        pattern=_pattern(given.subject, given.cluster, settings),
        since=since,
        until=until,
        last=given.last,
        trace=_trace(given.trace),
        lattice=given.lattice,
    )


def _pattern(subject: str | None, cluster: str | None, settings: ClientSettings) -> str | None:
    if subject is None:
        return None
    if cluster is not None and subject.startswith(f"{ROOT_EVENTS}."):
        raise SettingsError("--cluster: is part of an absolute --subject: give one of them")
    try:
        return pattern_filter(subject, cluster or settings.cluster)
    except ValueError as error:
        raise SettingsError(f"--subject: has {subject!r}, {error}") from None


def _noun(noun: str | None) -> str | None:
    if noun is not None and noun not in NOUNS:
        raise SettingsError(f"--noun: has {noun!r}, needs one of: {', '.join(NOUNS)}")
    return noun


def _trace(trace: str | None) -> str:
    wanted = (trace or "").strip().lower()
    if trace is not None and not _TRACE_ID.fullmatch(wanted):
        raise SettingsError(f"--trace: has {trace!r}, needs a trace id of 32 hex digits, or its first 8 or more")
    return wanted


async def follow(events: AsyncGenerator[TailedEvent, None], show: Callable[[TailedEvent], None]) -> bool:
    """Show events until the end of the stream, or until SIGINT or SIGTERM; return whether the stream has ended.

    If the reader of standard output ends, ``show`` raises SystemExit. It passes through the task of the command, after
    the stream was closed: in another task it would stop the event loop with an open connection to the bus.
    """
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with contextlib.aclosing(events):
            async for event in events:
                show(event)
        return True
    return False


def line_of(event: TailedEvent, *, whole: bool = False) -> str:
    """Return an event as one line, with the date if it is not from today; also for messages other than CloudEvents.

    ``whole``: long values are not cut off, for a reader other than a terminal.
    """
    envelope = event.event
    data = envelope.get("data")
    name = f"{event.noun}.{event.event_name}" if event.key else event.subject
    stored, today = event.stored.astimezone(), datetime.now(UTC).astimezone().date()
    parts = (
        stored.strftime("%H:%M:%S.%f" if stored.date() == today else "%Y-%m-%dT%H:%M:%S.%f")[:-3],
        one_line(name).ljust(19),
        one_line("/".join(event.key)) or _EMPTY,
        one_line(str(envelope.get("source", "")).rpartition("/")[2]) or _EMPTY,
        event.trace_id[:TRACE_SHOWN] or _EMPTY,
        _fields(event.noun, data if isinstance(data, dict) else {}, None if whole else _VALUE_MAX)
        if envelope
        else f"(not a CloudEvent: {event.size} bytes)",
    )
    return "  ".join(part for part in parts if part)


def _fields(noun: str, data: dict[str, Any], most: int | None) -> str:
    shown: tuple[str, ...] = _SHOWN
    if noun == NOUN_LATTICE:
        metadata = data.get("metadata")  # of an object
        shown, data = _SHOWN_OF_LATTICE, {**(metadata if isinstance(metadata, dict) else {}), **data}
    return " ".join(f"{name}={_short(data[name], most)}" for name in shown if data.get(name) not in (None, ""))


def _short(value: object, most: int | None) -> str:
    text = one_line(str(value))
    text = text if most is None or len(text) <= most else f"{text[: most - 1]}…"
    return f'"{text}"' if " " in text else text


def document_of(event: TailedEvent) -> dict[str, Any]:
    """Return the CloudEvent; for other messages their position in the stream."""
    if event.event:
        return event.event
    return {
        "unreadable": True,
        "sequence": event.sequence,
        "time": event.stored.isoformat(),
        "subject": event.subject,
        "size": event.size,
    }


def _shower(output: Format) -> Callable[[TailedEvent], None]:
    if output.structured:
        return lambda event: print_document(output, document_of(event), lines=True)
    whole = not sys.stdout.isatty()
    return lambda event: print_text(line_of(event, whole=whole))
