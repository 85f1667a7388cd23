"""A receiver of OpenTelemetry spans in this process.

In: OTLP/HTTP, protobuf, plain or gzip, as exporters send it to ``/v1/traces``. Out: plain spans in memory.
Called by the demo, benchmarks and tests, which read a trace without Jaeger, or before it is forwarded to Jaeger.
Invariants: memory is bounded: at most ``limit`` spans are kept, the oldest are dropped first; spans that cannot be
forwarded are rejected, so that the exporter retries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import web
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from trellis_dev.localcluster.ports import LOOPBACK

_MAX_BODY: Final = 32 * 2**20
_PROTOBUF: Final = "application/x-protobuf"
_PATH: Final = "/v1/traces"
_SECONDS: Final = aiohttp.ClientTimeout(total=5.0)

Attribute = str | bool | int | float | bytes | tuple[Any, ...] | dict[str, Any] | None


@dataclass(frozen=True)
class Span:
    """One span. Ids are lower-case hex; ``parent_id`` is empty at the root; times are nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    kind: str
    """``INTERNAL``, ``SERVER``, ``CLIENT``, ``PRODUCER`` or ``CONSUMER``."""
    attributes: Mapping[str, Attribute]
    status: str
    """``UNSET``, ``OK`` or ``ERROR``."""
    message: str = ""
    """Message of the status."""


class OtlpReceiver:
    """Receives spans on a free port of the loopback address, between :meth:`start` and :meth:`stop`.

    ``onward``: endpoint that all spans are forwarded to: ``http://host:port``.
    """

    def __init__(self, limit: int = 100_000, onward: str | None = None) -> None:
        self._onward = onward
        self._session: aiohttp.ClientSession | None = None
        self._kept: deque[Span] = deque(maxlen=limit)
        self._arrived = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @property
    def spans(self) -> list[Span]:
        """The stored spans in order of arrival."""
        return list(self._kept)

    async def start(self) -> str:
        """Start listening; return the endpoint for exporters, ``http://127.0.0.1:<port>``."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_post(_PATH, self._receive)
        self._session = aiohttp.ClientSession(timeout=_SECONDS)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0).start()
        return f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening; the spans are kept."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def wait_for(self, condition: Callable[[list[Span]], bool], seconds: float) -> list[Span]:
        """Wait until the condition holds for the stored spans, and return them.

        Raises:
            TimeoutError: it does not hold after ``seconds``.
        """
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: condition(self.spans))
        return self.spans

    async def _receive(self, request: web.Request) -> web.Response:
        # aiohttp has already decoded the content encoding.
        try:
            spans = list(_spans(ExportTraceServiceRequest.FromString(body := await request.read())))
        except (DecodeError, ValueError):  # ValueError: a kind or status that this version of the protocol lacks
            return web.Response(status=400, text="the body is not an ExportTraceServiceRequest")
        if not await self._went_on(body):
            return web.Response(status=503, text=f"{self._onward} rejects the spans")
        async with self._arrived:
            self._kept.extend(spans)
            self._arrived.notify_all()
        return web.Response(body=ExportTraceServiceResponse().SerializeToString(), content_type=_PROTOBUF)

    async def _went_on(self, body: bytes) -> bool:
        """Return whether the request was forwarded, or needs no forwarding."""
        if self._onward is None or self._session is None:
            return True
        try:
            async with self._session.post(
                self._onward + _PATH, data=body, headers={"Content-Type": _PROTOBUF}
            ) as answer:
                return answer.ok
        except (aiohttp.ClientError, TimeoutError):
            return False


def _spans(message: ExportTraceServiceRequest) -> Iterable[Span]:
    for resource in message.resource_spans:
        service = str(_attributes(resource.resource.attributes).get("service.name", ""))
        for scope in resource.scope_spans:
            for wire in scope.spans:
                yield _span(wire, service)


def _span(wire: WireSpan, service: str) -> Span:
    return Span(
        trace_id=wire.trace_id.hex(),
        span_id=wire.span_id.hex(),
        parent_id=wire.parent_span_id.hex(),
        name=wire.name,
        service=service,
        start_ns=wire.start_time_unix_nano,
        end_ns=wire.end_time_unix_nano,
        kind=WireSpan.SpanKind.Name(wire.kind).removeprefix("SPAN_KIND_"),
        attributes=_attributes(wire.attributes),
        status=Status.StatusCode.Name(wire.status.code).removeprefix("STATUS_CODE_"),
        message=wire.status.message,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Attribute]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Attribute:
    match value.WhichOneof("value"):
        case "array_value":
            return tuple(_value(item) for item in value.array_value.values)
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case None:
            return None
        case field:
            plain: Attribute = getattr(value, field)
            return plain
