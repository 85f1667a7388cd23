"""``trellis trace ID`` or ``KIND/NAME``: what followed from one change, as a tree, from Jaeger.

In: flags. Out: a table or JSON. Called by the command line. Changes nothing. Invariants: an object's trace is the one
of the last fact that was said of it; a trace that is not whole is shown as far as it is known, and that is said.
"""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Final

import typer

from trellis.bus.streams.tail import Selection, TailedEvent, Tally, replay
from trellis.config.settings import SettingsError
from trellis.events.subjects import FACTS, escape, pattern_filter
from trellis.installer_api.redaction import redact_url
from trellis.read_model.reading.traces import JaegerError, ask_jaeger
from trellis.read_model.traces.span_tree import document_of
from trellis.read_model.traces.spans import ReadSpan
from trellis.telemetry import setup_logging
from trellis_cli.common.errors import CommandError, exit_on_error, say
from trellis_cli.common.output import Format, OutputOption, console, print_json
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.events import ClusterOption, NatsOption
from trellis_cli.trace.views import notes, summary, table_of

KINDS: Final = {
    "node": ("node", "provision"),
    "group": ("hosts",),
    "pod": ("host_pod",),
    "service": ("service",),
    "application": ("application",),
    "secret": ("secret",),
    "controller": ("controller",),
}
"""What may stand before the slash, and the nouns of its facts."""
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_ANY: Final = "*"


def trace(
    what: Annotated[
        str,
        typer.Argument(metavar="ID|KIND/NAME", help=f"a trace's id of 32 digits, or KIND of: {', '.join(KINDS)}"),
    ],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="of the object; any, if not given")] = None,
    jaeger: Annotated[
        str | None, typer.Option(help="Jaeger's query API, http://host:16686 [env: TRELLIS_JAEGER_URL]")
    ] = None,
    nats_url: NatsOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what followed from one change: each step, who took it, how long it took, and what failed.

    The id stands in log lines, in facts (`trellis events replay`), and, as `traceparent`, on installer Jobs. For
    `KIND/NAME` it is that of the last fact about the object, which the bus keeps for 7 days. A link (→) leads to
    another trace: of a batch that this was part of, or of what else caused the same work.
    JSON: `{"trace", "whole", "spans": [{"depth", "span", "parent", "name", "service", "start", "end", "error",
    "links", "attributes"}]}`, times in nanoseconds since 1970.
    """
    with exit_on_error():
        setup_logging(log_format="text", level="error")
        settings = client_settings(nats_url=nats_url, jaeger_url=jaeger)
        if settings.jaeger_url is None:
            raise SettingsError("--jaeger: is not given, nor TRELLIS_JAEGER_URL: where is Jaeger's query API?")
        trace_id, spans = asyncio.run(_find(settings, settings.jaeger_url, what, namespace, cluster))
        _show(trace_id, spans, output)


async def _find(
    settings: ClientSettings, jaeger: str, what: str, namespace: str | None, cluster: str | None
) -> tuple[str, list[ReadSpan]]:
    wanted = what.strip().lower()
    if not _TRACE_ID.fullmatch(wanted):
        wanted = await _last_of(settings, what, namespace, cluster)
    try:
        spans = await ask_jaeger(jaeger, wanted)
    except JaegerError as error:
        raise CommandError(f"{error}; choose another with --jaeger") from None
    if not spans:
        message = (
            f"Jaeger at {redact_url(jaeger)} has no trace {wanted}: it comes in within seconds; else it was not "
            "sampled, is kept no longer, or the services send elsewhere (TRELLIS_OTLP_ENDPOINT)"
        )
        raise CommandError(message)
    return wanted, spans


async def _last_of(settings: ClientSettings, what: str, namespace: str | None, cluster: str | None) -> str:
    """Return the id of the trace that the last fact about an object belongs to."""
    kind, _, name = what.partition("/")
    if kind not in KINDS or not name:
        kinds = ", ".join(f"{kind}/NAME" for kind in KINDS)
        raise CommandError(f"no trace {what!r}: write its id of 32 hex digits, or one of {kinds}")
    found: list[TailedEvent] = []
    for noun in KINDS[kind]:
        pattern = pattern_of(noun, name, namespace)
        selection = Selection(pattern=pattern_filter(pattern, cluster or settings.cluster), last=1)
        events = replay(settings.nats_url, selection, Tally(), credentials=settings.nats_credentials)
        found += [event async for event in events]
    newest = max((event for event in found if event.trace_id), key=lambda event: event.sequence, default=None)
    if newest is None:
        where = f" in namespace {namespace}" if namespace else ""
        message = f"the bus has no fact about {kind} {name}{where}: it keeps them for 7 days (trellis events replay)"
        raise CommandError(message)
    return newest.trace_id


def pattern_of(noun: str, name: str, namespace: str | None) -> str:
    """Return the pattern of all facts about an object: ``<noun>.*.<key…>``."""
    fields = next(spec.key_fields for spec in FACTS if spec.model.noun == noun)
    before = [escape(namespace) if namespace else _ANY] * (len(fields) - 1)
    return ".".join((noun, _ANY, *before, escape(name)))


def _show(trace_id: str, spans: list[ReadSpan], output: Format) -> None:
    for note in notes(spans):
        say(note)
    if output is Format.JSON:
        print_json(document_of(trace_id, spans))
        return
    out = console()
    out.print(f"trace {trace_id}", style="bold", highlight=False)
    out.print(table_of(spans))
    out.print(summary(spans), highlight=False)
