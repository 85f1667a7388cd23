"""Exports spans to a collector, and logs failures once per outage.

In: ended spans. Out: OTLP over HTTP to ``<endpoint>/v1/traces``, from a thread. Called by ``telemetry.service``.
Invariant: an unreachable collector logs one warning at once and one every five minutes, never one per batch, and never
delays the service. The exporter is imported only if an endpoint is set, because it needs memory.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from trellis.installer_api.redaction import redact_url
from trellis.telemetry.logs import get_logger
from trellis.telemetry.timings import TelemetryTimings

_PATH: Final = "/v1/traces"
_EXPORTER_LOGGER: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_PROCESSOR_LOGGER: Final = "opentelemetry.sdk._shared_internal"
_OS_ERROR = re.compile(r"\[Errno -?\d+\] (?P<reason>[^'\")\]]+)")

Clock = Callable[[], float]

_log = get_logger(__name__)
# Outage of the log lines that the SDK writes in this thread: exporters log while they are called.
_exporting = threading.local()


def traces_url(endpoint: str) -> str:
    """Return the URL for spans: the endpoint (``http://host:4318``), with ``/v1/traces`` unless it ends with it."""
    base = endpoint.rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


class Outage:
    """State of one collector, and the time of the last warning; shared by all services of the process."""

    def __init__(
        self, endpoint: str, *, clock: Clock = time.monotonic, timings: TelemetryTimings = TelemetryTimings()
    ) -> None:
        self._repeat: Final = timings.repeat
        self._endpoint: Final = redact_url(endpoint)
        self._clock = clock
        self._lock = threading.Lock()
        self._warned_at: float | None = None
        self.failing = False

    def failed(self, reason: str) -> None:
        """Log a warning, unless the last one of this outage is less than five minutes old."""
        with self._lock:
            self.failing = True
            now = self._clock()
            if self._warned_at is not None and now - self._warned_at < self._repeat:
                return
            self._warned_at = now
        _log.warning("trace export failed, dropping spans", endpoint=self._endpoint, reason=reason)

    def delivered(self) -> None:
        """Log the end of an outage."""
        with self._lock:
            recovered, self.failing, self._warned_at = self.failing, False, None
        if recovered:
            _log.info("trace export works again", endpoint=self._endpoint)


class _ToOutage(logging.Filter):
    """Turns log lines of the exporter into one warning per outage; the first arrives 10 s before the batch fails."""

    def filter(self, record: logging.LogRecord) -> bool:
        outage: Outage | None = getattr(_exporting, "outage", None)
        if outage is None:
            return True
        if record.levelno >= logging.WARNING:
            outage.failed(_reason(record.getMessage()))
        return False


class _Seldom(logging.Filter):
    """Passes one line of each kind per five minutes: "queue full" is logged for each span."""

    def __init__(self, clock: Clock = time.monotonic, timings: TelemetryTimings = TelemetryTimings()) -> None:
        super().__init__()
        self._repeat = timings.repeat
        self._clock = clock
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = str(record.msg), self._clock()
        if now - self._last.get(kind, -self._repeat) < self._repeat:
            return False
        self._last[kind] = now
        return True


class ReportingExporter(SpanExporter):
    """Delegates to an exporter and reports failures once per outage."""

    def __init__(self, inner: SpanExporter, outage: Outage) -> None:
        self._inner = inner
        self._outage = outage
        self._closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans; FAILURE means they are dropped."""
        _exporting.outage = self._outage
        try:
            result = self._inner.export(spans)
        finally:
            _exporting.outage = None
        if result is SpanExportResult.SUCCESS:
            self._outage.delivered()
        else:
            self._outage.failed("the exporter stopped retrying")
        return result

    def give_up_if_failing(self) -> None:
        """Shut down early if the collector is unreachable: waiting for the last batch would only delay the exit."""
        if self._outage.failing:
            self.shutdown()

    def shutdown(self) -> None:
        """Close the connection; a second call does nothing (exporters of the SDK log a warning)."""
        if not self._closed:
            self._closed = True
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return the result of the inner exporter; this one buffers nothing."""
        return self._inner.force_flush(timeout_millis)


_outages: dict[str, Outage] = {}
_outages_lock = threading.Lock()


def _outage_of(endpoint: str) -> Outage:
    with _outages_lock:
        if not _outages:
            logging.getLogger(_EXPORTER_LOGGER).addFilter(_ToOutage())
            logging.getLogger(_PROCESSOR_LOGGER).addFilter(_Seldom())
        return _outages.setdefault(endpoint, Outage(endpoint))


def otlp_processor(
    endpoint: str, timings: TelemetryTimings = TelemetryTimings()
) -> tuple[BatchSpanProcessor, ReportingExporter]:
    """Return a processor that sends batches to the endpoint, and its exporter.

    Headers, certificates and timeouts come from the OTEL_EXPORTER_OTLP_* environment, as the SDK documents.
    """
    # Imported here: protobuf and requests are not loaded in a process that sends nothing.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    url = traces_url(endpoint)
    exporter = ReportingExporter(OTLPSpanExporter(endpoint=url), _outage_of(url))
    return BatchSpanProcessor(exporter, schedule_delay_millis=1000 * timings.batch), exporter


def _reason(message: str) -> str:
    """Return the error text of the operating system if there is one: the rest is detail of the client library."""
    found = _OS_ERROR.search(message)
    return redact_url(found["reason"].strip() if found else message)
