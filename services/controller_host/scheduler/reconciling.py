"""One call of a guest for one key.

In: an instance, a key and its object. Out: the result of the guest. Called by ``lifecycle``, in threads of the pool.
Invariant: the call is a span, which contains the requests of the guest.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson
from opentelemetry import trace

from controller_host.domain.keys import reference
from controller_host.domain.results import Result, read_result, reconcile_request
from controller_host.host_calls.calling import Calls
from controller_host.report.counters import Counters
from controller_host.scheduler.deliveries import Delivery
from trellis import names
from trellis.telemetry import Telemetry, TraceContext, linked, trace_from

if TYPE_CHECKING:
    from controller_host.guest.instance import Instance

_TRACEPARENT: Final = names.ANNOTATION_TRACEPARENT.encode()


def call_span(telemetry: Telemetry, controller: str, delivery: Delivery) -> AbstractContextManager[trace.Span]:
    """Start the span of a key as the root of a trace, because watches carry no trace context.

    The trace that an object names is linked, not continued: an object outlives the change that created it, and is
    delivered repeatedly.
    """
    turn = delivery.turn
    attributes: dict[str, str | int] = {
        "trellis.controller": controller,
        "trellis.attempt": turn.attempt,
        "k8s.namespace.name": turn.key.namespace,
        "k8s.object.name": turn.key.name,
    }
    return linked(telemetry, f"reconcile {turn.key.kind}", traces_named(delivery.item), attributes)


def traces_named(item: bytes | None) -> list[TraceContext]:
    """Return the trace that an object's annotation names; empty if the annotation is missing or malformed."""
    if item is None or _TRACEPARENT not in item:  # objects can have 1 MiB, and few have the annotation
        return []
    annotations = orjson.loads(item)["metadata"].get("annotations") or {}
    found = trace_from(annotations.get(names.ANNOTATION_TRACEPARENT))
    return [] if found is None else [found]


def reconcile(instance: Instance, calls: Calls, delivery: Delivery, counters: Counters, telemetry: Telemetry) -> Result:
    """Call the guest for one key.

    Raises:
        GuestFault: a fault ended the guest.
    """
    with telemetry.tracer.start_as_current_span("guest") as span:
        calls.begin(trace.set_span_in_context(span))
        key = reference(delivery.turn.key)
        request = reconcile_request(key, delivery.item, delivery.turn.attempt, _traceparent(span))
        called = instance.call("reconcile", request)
        result = replace(read_result(called.answer, called.requeue_ms), refused=calls.refused)
        if result.error:
            span.set_status(trace.StatusCode.ERROR, "it returned an error")  # its text can quote a Secret
    counters.calls += 1
    telemetry.metrics.controller_call_seconds.labels(telemetry.service).observe(called.wall_seconds)
    return result


def _traceparent(span: trace.Span) -> str | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
