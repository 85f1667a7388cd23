"""Keeps the trace of a key over several runs, until its work is complete.

In: the causes of runs. Out: spans, and contexts for events published in between. Called by the runs of keyed queues:
the write of a run returns as a watch event without a trace context, and causes the next run. Invariants: memory is
bounded in number and time; a lost trace (a new leader has none) only starts a new one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final, Generic, TypeVar

from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, get_current_span, use_span
from opentelemetry.util.types import AttributeValue

from trellis.telemetry.service import Telemetry
from trellis.telemetry.timings import TelemetryTimings
from trellis.telemetry.tracing import TraceContext, context_from, current_trace, joined, links_of, links_to

K = TypeVar("K", bound=Hashable)

MOST_TRACES: Final = 10_000
MOST_LINKS: Final = 128
"""Maximum number of links per span in the SDK."""
MERGED: Final = "merged"
"""Name of the span in the trace of a cause whose work is part of another trace; its link leads there."""


@contextmanager
def caused(
    telemetry: Telemetry, name: str, cause: TraceContext | None, attributes: Mapping[str, AttributeValue]
) -> Iterator[Span]:
    """Start the span of work that may have several causes, and make it the current span.

    The newest cause is its parent; it has links to the other causes. Each of these gets a span ``merged`` with a link
    back, so that each trace refers to the other.
    """
    span = telemetry.tracer.start_span(
        name, context=context_from(cause), attributes=dict(attributes), links=links_of(cause)
    )
    for other in cause.beside if cause is not None else ():
        back = [Link(span.get_span_context())]
        telemetry.tracer.start_span(MERGED, context=context_from(other), links=back).end()
    with use_span(span, end_on_exit=True):
        yield span


@contextmanager
def linked(
    telemetry: Telemetry, name: str, to: Iterable[TraceContext], attributes: Mapping[str, AttributeValue]
) -> Iterator[Span]:
    """Start the root span of work without a single cause, with links to the traces that it concerns."""
    with telemetry.tracer.start_as_current_span(
        name, context=Context(), attributes=dict(attributes), links=links_to(islice(to, MOST_LINKS))
    ) as span:
        yield span


@contextmanager
def within(
    telemetry: Telemetry, name: str, above: Context | None, attributes: Mapping[str, AttributeValue] | None = None
) -> Iterator[Span]:
    """Start a child span of the span in ``above`` (None: of the current span), and make it the current span.

    A trace that is not recorded gets no new span; the yielded span accepts attributes in both cases.
    """
    parent = get_current_span(above)
    of = parent.get_span_context()
    if of.is_valid and not of.trace_flags.sampled and not parent.is_recording():
        yield parent
        return
    with telemetry.tracer.start_as_current_span(
        name, context=above, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span


class TraceSpans(Generic[K]):
    """The traces of the keys of one queue."""

    def __init__(
        self,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
        timings: TelemetryTimings = TelemetryTimings(),
    ) -> None:
        self._timings = timings
        self._telemetry = telemetry
        self._clock = clock
        self._open_traces: OrderedDict[K, tuple[TraceContext, float]] = OrderedDict()

    @contextmanager
    def span(
        self, key: K, name: str, cause: TraceContext | None, attributes: Mapping[str, AttributeValue]
    ) -> Iterator[Span]:
        """Start the span of a run: in the trace of its cause, otherwise of the key, otherwise in a new trace."""
        former = self._find(key)
        with caused(self._telemetry, name, joined(former, cause), attributes) as span:
            now = current_trace()
            if now is not None:
                same = former is not None and former.trace_id == now.trace_id
                self._keep(key, former if former is not None and same else now)
            yield span

    @contextmanager
    def follow(self, key: K) -> Iterator[None]:
        """Add spans that start within the block to the trace of the key.

        If the key has no trace, each of them starts a new one.
        """
        token = context_api.attach(context_from(self._find(key)))
        try:
            yield
        finally:
            context_api.detach(token)

    def end(self, key: K) -> None:
        """End the trace of a key whose work is complete; its next run starts a new trace."""
        self._open_traces.pop(key, None)

    def __len__(self) -> int:
        """Return the number of open traces."""
        return len(self._open_traces)

    def _find(self, key: K) -> TraceContext | None:
        found = self._open_traces.get(key)
        if found is None or self._clock() - found[1] < self._timings.trace_idle:
            return None if found is None else found[0]
        del self._open_traces[key]
        return None

    def _keep(self, key: K, trace: TraceContext) -> None:
        self._open_traces[key] = (trace, self._clock())
        self._open_traces.move_to_end(key)
        while len(self._open_traces) > MOST_TRACES:
            self._open_traces.popitem(last=False)
