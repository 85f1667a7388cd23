"""Metrics of secrets_backend.

In: outcomes of answers, connections. Out: counters, a histogram, gauges that are read at each scrape. Called by
``answering`` and ``lattice_connections``. Invariant: no client can choose the value of a label.
"""

from __future__ import annotations

from trellis.telemetry.metrics import Metrics
from trellis.telemetry.observed import Read


class SecretMetrics:
    """The metrics of one process."""

    def __init__(self, metrics: Metrics, service: str) -> None:
        self._metrics = metrics
        self._service = service
        self._seconds = metrics.secrets_request_seconds.labels(service)

    def answered(self, outcome: str, seconds: float) -> None:
        """Count an answer: ``granted``, ``server_xkey`` or the protocol's error; seconds since the request."""
        self._metrics.secrets_requests_total.labels(self._service, outcome).inc()
        self._seconds.observe(seconds)

    def dropped(self, reason: str) -> str:
        """Count a request without an answer, and return the reason."""
        self._metrics.secrets_dropped_total.labels(self._service, reason).inc()
        return reason

    def links(self, state: str, read: Read) -> None:
        """Read the number of connections in a state at each scrape."""
        self._metrics.secrets_connections.labels(self._service, state).set_function(read)

    def in_progress(self, read: Read) -> None:
        """Read the number of requests in progress or waiting at each scrape."""
        self._metrics.secrets_in_progress.labels(self._service).set_function(read)
