"""Exports the steps of a run as spans of the trace that created its Job.

In: ``TRACEPARENT`` and an OTLP endpoint. Out: one request with all spans, at the end. Called by ``operations``. The
request uses the proxies and the CA file of the downloads. Source: OTLP/HTTP with JSON encoding (OpenTelemetry protocol
1.x), W3C Trace Context. Without the SDK, because it and its exporter are 40 times the size of this program and start
slower than it runs (ADR 18). Invariants: nothing is sent without an endpoint and a valid parent; an unreachable
collector delays the end of a run by 2 s and causes a warning.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from node_installer.domain.errors import InstallError
from node_installer.fetch.web import opener

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")
_SAMPLED: Final = 0x01
_INTERNAL, _ERROR = 1, 2


@dataclass(slots=True)
class Span:
    """One step. Attributes may be added until it ends."""

    name: str
    identity: str
    parent: str
    start: int
    attributes: dict[str, str | int | bool]
    end: int = 0
    error: str = ""


@dataclass(slots=True)
class Tracer:
    """Collector of the spans of one run."""

    endpoint: str | None
    traceparent: str | None
    version: str = "unknown"
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    samples_always: bool = False
    """Export spans even if the parent is not sampled."""
    seconds: float = 2.0
    """Timeout of the collector."""
    _spans: list[Span] = field(default_factory=list, init=False)
    _open: list[Span] = field(default_factory=list, init=False)

    @contextlib.contextmanager
    def span(self, name: str, **attributes: str | int | bool) -> Iterator[Span]:
        """Time a step; an exception that leaves it marks it as failed, with its text."""
        parent = self._open[-1].identity if self._open else self._ids()[1]
        span = Span(name, secrets.token_hex(8), parent, time.time_ns(), attributes)
        self._open.append(span)
        try:
            yield span
        except BaseException as error:
            span.error = str(error) or type(error).__name__
            raise
        finally:
            span.end = time.time_ns()
            self._open.remove(span)
            self._spans.append(span)

    def send(self) -> str:
        """Send all ended spans; return why they could not be sent, "" if they were or need not be."""
        trace, _ = self._ids()
        if not self.endpoint or not trace or not self._spans or not self._is_sampled():
            return ""
        headers = {"Content-Type": "application/json", **self.headers}
        body = json.dumps(self._payload(trace), separators=(",", ":")).encode()
        url = _traces_url(self.endpoint)
        try:
            request = urllib.request.Request(url, body, headers)  # noqa: S310 (an operator's own address)
            with opener(url, self._ca_file()).open(request, timeout=self.seconds):
                return ""
        except (InstallError, OSError, ValueError, http.client.HTTPException) as error:
            return _error_text(error)

    def _ca_file(self) -> Path | None:
        """Return the CA file if it is used: without TLS, a missing file must not prevent the export."""
        return self.ca_file if (self.endpoint or "").lower().startswith("https:") else None

    def _is_sampled(self) -> bool:
        """Return whether the parent is sampled: without it, the spans of this run have no context."""
        if self.samples_always:
            return True
        found = _TRACEPARENT.fullmatch((self.traceparent or "").strip().lower())
        return bool(found and int(found["flags"], 16) & _SAMPLED)

    def _ids(self) -> tuple[str, str]:
        found = _TRACEPARENT.fullmatch((self.traceparent or "").strip().lower())
        if not found or not int(found["trace"], 16) or not int(found["span"], 16):
            return "", ""
        return found["trace"], found["span"]

    def _payload(self, trace: str) -> dict[str, Any]:
        resource = {
            "service.name": "trellis-node-installer",
            "service.namespace": "trellis",
            "service.version": self.version,
        }
        return {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeSpans": [
                        {
                            "scope": {"name": "trellis", "version": self.version},
                            "spans": [_span(trace, span) for span in self._spans],
                        }
                    ],
                }
            ]
        }


def _error_text(error: Exception) -> str:
    if isinstance(error, InstallError):
        return error.message
    if isinstance(error, urllib.error.HTTPError):
        return f"the collector answers {error.code} {error.reason}"
    reason = getattr(error, "reason", None) or error
    text = str(getattr(reason, "strerror", None) or reason)
    if isinstance(reason, ssl.SSLCertVerificationError):
        text += "; provide the CA that signed it as the CA file"
    return text


def _span(trace: str, span: Span) -> dict[str, Any]:
    value: dict[str, Any] = {
        "traceId": trace,
        "spanId": span.identity,
        "parentSpanId": span.parent,
        "name": span.name,
        "kind": _INTERNAL,
        # 64-bit numbers are strings in protobuf's JSON.
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
    }
    if span.error:
        value["status"] = {"code": _ERROR, "message": span.error}
    return value


def _attributes(values: Mapping[str, str | int | bool]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: str | int | bool) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case _:
            return {"stringValue": value}


def _traces_url(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"
