"""Traces, metrics and logs of all services.

In: spans, counts and events of bus, kube and services. Out: OTLP if an endpoint is set, ``/metrics``, stderr.
Everything below the services uses it; it uses none of them.
"""

from __future__ import annotations

from trellis.telemetry.logs import LogFormat, bind_service, get_logger, setup_logging
from trellis.telemetry.metrics import Metrics, process_metrics, trellis_version
from trellis.telemetry.service import ATTRIBUTE_CLUSTER, Telemetry, setup
from trellis.telemetry.trace_spans import TraceSpans, caused, linked, within
from trellis.telemetry.tracing import TraceContext, context_from, current_trace, joined, links_of, links_to, trace_from

__all__ = [
    "ATTRIBUTE_CLUSTER",
    "LogFormat",
    "Metrics",
    "Telemetry",
    "TraceContext",
    "TraceSpans",
    "bind_service",
    "caused",
    "context_from",
    "current_trace",
    "get_logger",
    "joined",
    "linked",
    "links_of",
    "links_to",
    "process_metrics",
    "setup",
    "setup_logging",
    "trace_from",
    "trellis_version",
    "within",
]
