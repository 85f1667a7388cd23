"""Reads a trace from Jaeger.

In: the address of its query API, the id of a trace. Out: spans. Called by ``trace`` and by tests. Changes nothing.
Invariant: the response of any server at the address has bounded time and length.
Source: Jaeger's HTTP query API: ``GET /api/traces/<id>``, 404 for an unknown trace.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import aiohttp
import orjson

from trellis.installer_api.redaction import redact_url
from trellis.kube.network_errors import network_reason
from trellis.read_model.errors import AnswerError
from trellis.read_model.timings import ModelTimings
from trellis.read_model.traces.spans import ReadSpan, TraceDataError, read_spans

MOST_BYTES: Final = 64 * 2**20
"""Maximum size of a response; a span has about 1 KiB."""


class JaegerError(AnswerError):
    """The trace cannot be read: no response, or not one of Jaeger. The caller adds the resolution."""


async def ask_jaeger(url: str, trace_id: str, timings: ModelTimings = ModelTimings()) -> list[ReadSpan]:
    """Return the spans of a trace, none if Jaeger does not have it.

    Raises:
        JaegerError: no server responds, or not Jaeger.
    """
    address = f"{url.rstrip('/')}/api/traces/{trace_id}"
    where = f"Jaeger at {redact_url(url)}"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timings.jaeger), trust_env=True) as session,
            session.get(address) as answer,
        ):
            body = await _read(answer, where)
            if answer.status == HTTPStatus.NOT_FOUND and _is_json(body):
                return []
            if answer.status != HTTPStatus.OK:
                raise JaegerError(f"{where} answers {answer.status} {answer.reason}: is it the query API (port 16686)?")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise JaegerError(f"{where} unreachable: {network_reason(error)}") from None
    try:
        return read_spans(orjson.loads(body))
    except (orjson.JSONDecodeError, TraceDataError) as error:
        raise JaegerError(f"{where}: {error}") from None


async def _read(answer: aiohttp.ClientResponse, where: str) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            raise JaegerError(f"{where} has more of this trace than {MOST_BYTES // 2**20} MiB: open it in Jaeger")
    return bytes(body)


def _is_json(body: bytes) -> bool:
    """Distinguish Jaeger without the trace from another server without the page."""
    try:
        return "errors" in orjson.loads(body)
    except (orjson.JSONDecodeError, TypeError):
        return False
