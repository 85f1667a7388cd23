"""``trellis trace``: the spans of one change as a tree, from Jaeger.

In: flags. Out: a table or JSON. Called by the command line. Changes nothing. Invariants: an object's trace is that of
the last event about it; of an incomplete trace the known spans are printed, with a note.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Final, TypeAlias

import typer
from rich.text import Text

from trellis.bus.streams.tail import Selection, TailedEvent, Tally, replay
from trellis.config.settings import SettingsError
from trellis.events.subjects import EVENT_SPECS, escape, pattern_filter
from trellis.installer_api.redaction import redact_url
from trellis.read_model.reading.pod_kinds import RESOURCES
from trellis.read_model.reading.traces import JaegerError, ask_jaeger
from trellis.read_model.traces.span_tree import document_of
from trellis.read_model.traces.spans import ReadSpan
from trellis.telemetry import setup_logging
from trellis_cli.common.complete import complete_object
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.messages import print_note
from trellis_cli.common.objects import ObjectName, read_object
from trellis_cli.common.options import AllNamespacesOption, NamespaceOption, one_namespace
from trellis_cli.common.output import DocumentOption, Format, print_document, print_result
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.events import ClusterOption, NatsOption
from trellis_cli.trace.views import notes, summary, table_of

_WASM_WORKLOAD: Final = "wasm_workload"
KINDS: Final = {
    "node": ("node", "provision"),
    "hostgroup": ("hosts",),
    "host": ("host_pod",),
    "service": ("service",),
    "application": ("application",),
    "secret": ("secret",),
    "controller": ("controller",),
    "workloaddeployment": ("workload_deployment",),
    "workload": ("workload",),
    "whost": ("wasm_host",),
    "artifact": ("artifact",),
    **dict.fromkeys(RESOURCES, (_WASM_WORKLOAD,)),
}
"""Kinds that events are about, and the nouns of their events."""
_TRACE_ID = re.compile(r"[0-9a-f]{8,32}")
"""The id of a trace, or its beginning as `trellis events` shows it."""
_ID_DIGITS: Final = 32
_NAMED: Final = 5
_ANY: Final = "*"
Found: TypeAlias = tuple[str, list[ReadSpan]]
Read: TypeAlias = Callable[[Selection], AsyncIterator[TailedEvent]]
"""Returns the stored events of a selection."""


def trace(  # noqa: PLR0913, PLR0917 - options of a command line
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE_ID | KIND NAME | KIND/NAME",
            help=f"KIND is one of: {', '.join(KINDS)}",
            autocompletion=complete_object(KINDS),
        ),
    ],
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    jaeger: Annotated[
        str | None, typer.Option(help="Jaeger's query API, http://host:16686 [env: TRELLIS_JAEGER_URL]")
    ] = None,
    nats_url: NatsOption = None,
    cluster: ClusterOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Show the spans of one change as a tree, from Jaeger.

    The id is in log lines, in events (`trellis events replay`), and in the annotation `trellis.dev/traceparent` of
    installer Jobs. Its first 8 digits or more select the trace of an event on the bus, which stores events for 7 days.
    For an object it is the trace of the last event about it. A link (→) refers to another trace: of a batch, or of
    another cause of the same work.
    JSON: `{"trace", "whole", "spans": [{"depth", "span", "parent", "name", "service", "start", "end", "error",
    "links", "attributes"}]}`, times in nanoseconds since 1970.
    """
    with exit_on_error():
        wanted = read_argument(what, one_namespace(namespace, all_namespaces=all_namespaces))
        setup_logging(log_format="text", level="error")
        settings = client_settings(nats_url=nats_url, jaeger_url=jaeger)
        if settings.jaeger_url is None:
            raise SettingsError(
                "--jaeger: is missing, and TRELLIS_JAEGER_URL is not set: give the address of Jaeger's query API"
            )
        trace_id, spans = asyncio.run(_find(settings, settings.jaeger_url, wanted, cluster))
        _show(trace_id, spans, output)


async def _find(settings: ClientSettings, jaeger: str, wanted: str | ObjectName, cluster: str | None) -> Found:
    cluster = cluster or settings.cluster

    def read(selection: Selection) -> AsyncIterator[TailedEvent]:
        return replay(settings.nats_url, selection, Tally(), credentials=settings.nats_credentials)

    if isinstance(wanted, str):
        trace_id = wanted if len(wanted) == _ID_DIGITS else await whole_id(wanted, read, cluster)
    else:
        trace_id = await _last_of(read, wanted, cluster)
    try:
        spans = await ask_jaeger(jaeger, trace_id)
    except JaegerError as error:
        raise CommandError(f"{error}; select another with --jaeger") from None
    if not spans:
        message = (
            f"trace {trace_id} not found in Jaeger at {redact_url(jaeger)}: spans arrive within seconds; else it was "
            "not sampled, has expired, or the services export elsewhere (TRELLIS_OTLP_ENDPOINT)"
        )
        raise CommandError(message)
    return trace_id, spans


def read_argument(arguments: Sequence[str], namespace: str | None) -> str | ObjectName:
    """Return the id of a trace or its beginning, or the object whose last trace is requested.

    Raises:
        SettingsError: the words are neither, or name a Shim.
    """
    trace_id = arguments[0].strip().lower() if len(arguments) == 1 else ""
    if _TRACE_ID.fullmatch(trace_id):
        return trace_id
    if shim := _shim_in(arguments):
        raise SettingsError(
            f"a Shim has no trace of its own, its installation on a node has one: trellis trace node/NODE; the nodes: "
            f"trellis rollout status {shim}"
        )
    return read_object(arguments, tuple(KINDS), namespace)


def _shim_in(arguments: Sequence[str]) -> str:
    """Return the name of a Shim, "" if the words do not name one."""
    try:
        return read_object(arguments, ("shim",)).name
    except SettingsError:
        return ""


async def whole_id(digits: str, read: Read, cluster: str | None) -> str:
    """Return the id of the trace that begins with these digits: Jaeger finds whole ids only.

    Raises:
        CommandError: no stored event has such a trace, or events of several do.
    """
    for lattice in (None, ""):  # events of Trellis, then the forwarded events of all lattices
        found = {event.trace_id async for event in read(Selection(cluster=cluster, trace=digits, lattice=lattice))}
        if len(found) > 1:
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            named = ", ".join(sorted(found)[:_NAMED]) + more
            raise CommandError(f"{digits} is the beginning of several traces: {named}: give more digits")
        if found:
            return found.pop()
    raise CommandError(
        f"no event of a trace that begins with {digits} on the bus, which keeps events for 7 days: give all "
        f"{_ID_DIGITS} digits"
    )


async def _last_of(read: Read, wanted: ObjectName, cluster: str | None) -> str:
    """Return the id of the trace of the last event about an object."""
    found: list[TailedEvent] = []
    for noun in KINDS[wanted.kind]:
        for pattern in patterns_of(noun, wanted):
            selection = Selection(pattern=pattern_filter(pattern, cluster), last=1)
            found += [event async for event in read(selection)]
    newest = max((event for event in found if event.trace_id), key=lambda event: event.sequence, default=None)
    if newest is None:
        where = f" in namespace {wanted.namespace}" if wanted.namespace else ""
        raise CommandError(
            f"no event about {wanted.kind} {wanted.name}{where} on the bus, which keeps events for 7 days: "
            "see `trellis events replay`"
        )
    return newest.trace_id


def patterns_of(noun: str, wanted: ObjectName) -> list[str]:
    """Return the patterns of all events about an object: ``<noun>.*.<key…>``.

    The key of an event about Wasm pods has the kind of their owner, and that of a failure the reason at its end.
    """
    namespace = escape(wanted.namespace) if wanted.namespace else _ANY
    if noun == _WASM_WORKLOAD:
        named = ".".join((noun, _ANY, namespace, RESOURCES[wanted.kind].kind, escape(wanted.name)))
        return [named, f"{named}.{_ANY}"]
    fields = next(spec.key_fields for spec in EVENT_SPECS if spec.model.noun == noun)
    return [".".join((noun, _ANY, *[namespace] * (len(fields) - 1), escape(wanted.name)))]


def _show(trace_id: str, spans: list[ReadSpan], output: Format) -> None:
    for note in notes(spans):
        print_note(note)
    if output.structured:
        print_document(output, document_of(trace_id, spans))
        return
    print_result(Text(f"trace {trace_id}", style="bold"), table_of(spans), summary(spans))
