"""Converts W3C trace context between text (messages, manifests) and OpenTelemetry contexts.

In: ``traceparent``/``tracestate`` of a message, an annotation or an environment. Out: a parent for the next span.
Called by bus, kube and services. Invariant: malformed external text yields None, never an error or a log line. Source:
W3C Trace Context, sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from opentelemetry import trace as trace_api
from opentelemetry.context import Context
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TRACEPARENT: Final = "traceparent"
_TRACESTATE: Final = "tracestate"
_LONGEST: Final = 512
MOST_BESIDE: Final = 8
"""Maximum number of causes of one piece of work that are kept besides the newest."""
# One list member: key=value of printable ASCII without comma and equals sign (section 3.3.1.3).
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A position in a trace, as text for CloudEvents, NATS headers, annotations and ``TRACEPARENT``.

    ``beside``: further causes of the same work, of other traces, the newest first. They never leave the process; the
    span of the work has links to them.
    """

    traceparent: str
    tracestate: str | None = None
    beside: tuple[TraceContext, ...] = ()

    @property
    def trace_id(self) -> str:
        """The ID of the trace: 32 hex digits."""
        return self.traceparent.split("-")[1]


def current_trace() -> TraceContext | None:
    """Return the context of the current span, None outside of a span."""
    return _as_text(None)


def joined(former: TraceContext | None, newer: TraceContext | None) -> TraceContext | None:
    """Return the cause of work that has two causes: the newer one, with causes of other traces in ``beside``."""
    if former is None or newer is None:
        return newer or former
    found = {newer.trace_id: newer}
    for item in (*newer.beside, former, *former.beside):
        found.setdefault(item.trace_id, replace(item, beside=()))
    return replace(newer, beside=tuple(found.values())[1 : MOST_BESIDE + 1])


def links_of(trace: TraceContext | None) -> list[Link]:
    """Return links to the causes that are not the parent."""
    return links_to(trace.beside if trace is not None else ())


def links_to(traces: Iterable[TraceContext]) -> list[Link]:
    """Return links to positions in traces."""
    return [Link(trace_api.get_current_span(context_from(trace)).get_span_context()) for trace in traces]


def context_from(trace: TraceContext | None) -> Context:
    """Return an OpenTelemetry context whose current span is the remote span; an empty context for None.

    An empty context starts a new trace, so the handler of a message never inherits the span of another message.
    """
    if trace is None:
        return Context()
    carrier = {_TRACEPARENT: trace.traceparent}
    if trace.tracestate:
        carrier[_TRACESTATE] = trace.tracestate
    return _PROPAGATOR.extract(carrier, context=Context())


def trace_from(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """Return the trace context of text from outside, None if ``traceparent`` is absent or malformed.

    A malformed ``tracestate`` is dropped and the rest kept, as the specification requires.
    """
    if not traceparent or len(traceparent) > _LONGEST:
        return None
    return _as_text(context_from(TraceContext(traceparent.strip(), _usable(tracestate))))


def _usable(tracestate: str | None) -> str | None:
    if not tracestate or len(tracestate) > _LONGEST:
        return None
    members = [member.strip(" \t") for member in tracestate.split(",")]
    return tracestate if all(_MEMBER.fullmatch(member) for member in members if member) else None


def _as_text(context: Context | None) -> TraceContext | None:
    if not trace_api.get_current_span(context).get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context=context)
    return TraceContext(carrier[_TRACEPARENT], carrier.get(_TRACESTATE) or None)
