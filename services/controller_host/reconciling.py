"""One call of a guest for one key.

In: an instance, a key and its object. Out: what the guest answered. Called by ``lifecycle``, in threads of the pool.
Invariant: the call is a span, and what the guest asks for is part of it.
"""

from __future__ import annotations

from opentelemetry import trace

from controller_host.calling import Calls
from controller_host.deliveries import Delivery
from controller_host.figures import Figures
from controller_host.guest.instance import Instance
from controller_host.keys import ObjectKey, reference
from controller_host.results import Result, read_result, reconcile_request
from controller_host.turns import Turn
from trellis.telemetry import Telemetry


def attributes_of(controller: str, turn: Turn[ObjectKey]) -> dict[str, str | int]:
    """Return the attributes of the span of a key."""
    return {
        "trellis.controller": controller,
        "trellis.attempt": turn.attempt,
        "k8s.namespace.name": turn.key.namespace,
        "k8s.object.name": turn.key.name,
    }


def reconcile(instance: Instance, calls: Calls, delivery: Delivery, figures: Figures, telemetry: Telemetry) -> Result:
    """Call for one key.

    Raises:
        GuestFault: it ended the guest.
    """
    with telemetry.tracer.start_as_current_span("guest") as span:
        calls.begin(trace.set_span_in_context(span))
        key = reference(delivery.turn.key)
        request = reconcile_request(key, delivery.item, delivery.turn.attempt, _traceparent(span))
        called = instance.call("reconcile", request)
        result = read_result(called.answer, called.requeue_ms)
        if result.error:
            span.set_status(trace.StatusCode.ERROR, "it returned an error")  # whose words may quote a Secret
    figures.calls += 1
    telemetry.metrics.controller_call_seconds.labels(telemetry.service).observe(called.wall_seconds)
    return result


def _traceparent(span: trace.Span) -> str | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
