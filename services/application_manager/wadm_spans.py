"""Trace span of a request to wadm; wadm propagates no trace context.

In: an action. Out: a span, current during the request. Called by ``apply``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from opentelemetry.trace import Span, SpanKind

from application_manager.domain.actions import DeleteModel, Deploy, Put, Undeploy
from trellis.telemetry import Telemetry

_VERBS: Final = {Put: "put", Deploy: "deploy", Undeploy: "undeploy", DeleteModel: "delete"}


def request_span(telemetry: Telemetry, action: Put | Deploy | Undeploy | DeleteModel) -> AbstractContextManager[Span]:
    """Start the span of a write request to wadm."""
    return telemetry.tracer.start_as_current_span(f"wadm {_VERBS[type(action)]}", kind=SpanKind.CLIENT)
