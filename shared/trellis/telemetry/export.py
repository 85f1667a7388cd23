"""Sends spans to a collector, and says once when it cannot.

In: ended spans. Out: OTLP over HTTP to ``<endpoint>/v1/traces``, from a thread. Called by ``telemetry.service``.
Invariant: a collector that is away costs one warning now and one every five minutes, never a line per batch, and
never holds up the service. The exporter is imported only when an endpoint is set: it costs memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from trellis.redaction import redact_url
from trellis.telemetry.logs import get_logger

_PATH: Final = "/v1/traces"
_REPEAT_SECONDS: Final = 300.0
# A demo should show its spans at once; five seconds, the SDK's default, feel broken.
_SCHEDULE_DELAY_MS: Final = 1000.0
_SDK_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.trace.export",
)

_log = get_logger(__name__)


def traces_url(endpoint: str) -> str:
    """Return where spans are posted: the endpoint (``http://host:4318``) with ``/v1/traces``, unless it has it."""
    base = endpoint.rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


class _Outage(logging.Filter):
    """One collector's state, shared by all services of the process; swallows what the SDK logs about it."""

    def __init__(self, endpoint: str, clock: Callable[[], float]) -> None:
        super().__init__()
        self._endpoint = redact_url(endpoint)
        self._clock = clock
        self._lock = threading.Lock()
        self._warned_at: float | None = None
        self._reason = "no reason given"
        self.failing = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the SDK's words as the reason of the warning; the line itself goes nowhere."""
        if record.levelno >= logging.WARNING and not record.getMessage().startswith("Failed to export spans batch due"):
            self._reason = redact_url(record.getMessage())
        return False

    def failed(self) -> None:
        """Warn, unless a warning stands that is less than five minutes old."""
        with self._lock:
            self.failing = True
            now = self._clock()
            if self._warned_at is not None and now - self._warned_at < _REPEAT_SECONDS:
                return
            self._warned_at = now
        _log.warning("spans cannot be delivered and are dropped", endpoint=self._endpoint, reason=self._reason)

    def delivered(self) -> None:
        """Say so if it did not work before."""
        if not self.failing:
            return
        with self._lock:
            recovered, self.failing, self._warned_at = self.failing, False, None
        if recovered:
            _log.info("spans are delivered again", endpoint=self._endpoint)


_outages: dict[str, _Outage] = {}
_outages_lock = threading.Lock()


def _outage_of(endpoint: str, clock: Callable[[], float]) -> _Outage:
    with _outages_lock:
        if endpoint not in _outages:
            _outages[endpoint] = _Outage(endpoint, clock)
            for name in _SDK_LOGGERS:
                logging.getLogger(name).addFilter(_outages[endpoint])
        return _outages[endpoint]


class ReportingExporter(SpanExporter):
    """Delegates to an exporter and reports failures once per outage of the endpoint."""

    def __init__(self, inner: SpanExporter, endpoint: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._outage = _outage_of(endpoint, clock)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans; FAILURE means they are dropped."""
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._outage.delivered()
        else:
            self._outage.failed()
        return result

    def give_up_if_failing(self) -> None:
        """Before shutdown: with the collector away, waiting for the last batch would only delay the end."""
        if self._outage.failing:
            self._inner.shutdown()

    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return the inner exporter's answer; it holds nothing back itself."""
        return self._inner.force_flush(timeout_millis)


def otlp_processor(endpoint: str) -> tuple[BatchSpanProcessor, ReportingExporter]:
    """Return a processor that sends batches to the endpoint each second, and its exporter.

    Credentials and timeouts come from the OTEL_EXPORTER_OTLP_* environment, as the SDK documents.
    """
    # Imported here: protobuf and requests are not loaded in a process that sends nothing.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    url = traces_url(endpoint)
    exporter = ReportingExporter(OTLPSpanExporter(endpoint=url), url)
    return BatchSpanProcessor(exporter, schedule_delay_millis=_SCHEDULE_DELAY_MS), exporter
