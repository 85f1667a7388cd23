"""Metrics of the console. In: counts of ``console``. Out: a part of the registry of ``metrics``."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge


class ConsoleMetrics:
    """A part of ``Metrics``. Invariant: no label identifies a viewer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry: Final = registry
        self.console_requests_total: Final = Counter(
            "trellis_console_requests_total",
            "Requests answered by the console; code is the HTTP status",
            ("service", "route", "code"),
            registry=registry,
        )
        self.console_streams: Final = Gauge(
            "trellis_console_streams",
            "Open server-sent event streams of the console",
            ("service", "stream"),
            registry=registry,
        )
        self.console_streams_cut_total: Final = Counter(
            "trellis_console_streams_cut_total",
            "Streams closed by the console before the browser closed them, by reason",
            ("service", "stream", "reason"),
            registry=registry,
        )
        self.console_viewers: Final = Gauge(
            "trellis_console_viewers", "Viewers with active watches", ("service",), registry=registry
        )
        self.console_sessions: Final = Gauge(
            "trellis_console_sessions", "Sessions of logged-in browsers", ("service",), registry=registry
        )
