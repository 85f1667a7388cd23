"""The metrics of the console. In: counts of ``console``. Out: a part of the one registry, see ``metrics``."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge


class ConsoleMetrics:
    """A part of ``Metrics``. Invariant: no label says who looks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry: Final = registry
        self.console_requests_total: Final = Counter(
            "trellis_console_requests_total",
            "Requests that the console answered; code is of HTTP",
            ("service", "route", "code"),
            registry=registry,
        )
        self.console_streams: Final = Gauge(
            "trellis_console_streams",
            "Streams that pages of the console read",
            ("service", "stream"),
            registry=registry,
        )
        self.console_streams_cut_total: Final = Counter(
            "trellis_console_streams_cut_total",
            "Streams that ended before the page left, and why",
            ("service", "stream", "reason"),
            registry=registry,
        )
        self.console_viewers: Final = Gauge(
            "trellis_console_viewers", "Viewers for whom the cluster is watched", ("service",), registry=registry
        )
        self.console_sessions: Final = Gauge(
            "trellis_console_sessions", "Browsers that are logged in", ("service",), registry=registry
        )
