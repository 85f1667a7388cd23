"""A call to the API server: time budget, retry-after, credentials, span, metric, errors.

In: a ``Call`` (verb and object) and an ``HttpRequest``. Out: the JSON of the answer, or a ``KubeError``. Called by
``trellis.kube.client``. Invariants: a write is sent once unless the server reported that it did not process it (aiohttp
may resend a PUT or DELETE on a connection that was closed while idle, which is harmless because these have
preconditions); no call exceeds its budget; a guard is checked before each write.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from trellis.kube.errors import Call, KubeError, TooManyRequests, Unavailable, error_from, too_large, unavailable
from trellis.kube.nesting import parse
from trellis.kube.server_clock import ServerClock
from trellis.kube.shared_transport import IMPERSONATE, IMPERSONATE_GROUP
from trellis.kube.timings import KubeTimings
from trellis.kube.transport import AnswerTooLong, ConnectionFailed, HttpRequest, Reply, Stream, Transport
from trellis.limits.backoff import Attempts
from trellis.telemetry import Telemetry

_READ_TRIES = 2
_NOT_ITS_OWN = 500
"""Answers with this status or above can come from a proxy instead of the API server."""
_SECRET = {"secrets"}


@dataclass(slots=True)
class Contact:
    """Times of answers of the API server: distinguishes a stalled watch from an unreachable server."""

    clock: Callable[[], float] = time.monotonic
    _since: float | None = None
    _last: float = 0.0
    _last_call: float = 0.0

    def answered(self) -> None:
        """Record an answer, of any status."""
        self._last = self._last_call = self.clock()
        if self._since is None:
            self._since = self._last

    def failed(self) -> None:
        """Record a call without an answer."""
        self._last_call = self.clock()
        self._since = None

    def since_last_call(self) -> float:
        """Return the seconds since a call last ended, answered or not."""
        return self.clock() - self._last_call

    def answering_for(self, recent: float) -> float:
        """Return the seconds for which every call was answered; 0 after a failed call, or without a recent answer.

        ``recent``: maximum age of an answer in seconds.
        The time since the last answer does not count: the server may have become unreachable right after it.
        """
        if self._since is None or self.clock() - self._last > recent:
            return 0.0
        return self._last - self._since


@dataclass(frozen=True)
class Caller:
    """Sends requests; ``guard`` raises NotLeading when writes must stop; ``user``: the impersonated user, if set.

    ``groups``: groups of that user; empty means that the server determines them. ``token``: bearer token that replaces
    the credentials of the connection.
    """

    transport: Transport
    telemetry: Telemetry
    contact: Contact = field(default_factory=Contact)
    clock: ServerClock = field(default_factory=ServerClock)
    guard: Callable[[], None] | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    token: str = field(default="", repr=False)
    timings: KubeTimings = field(default_factory=KubeTimings)

    async def call(
        self,
        call: Call,
        request: HttpRequest,
        *,
        timeout: float,  # noqa: ASYNC109
        decode: Callable[[bytes], Any] | None = None,
    ) -> Any:  # noqa: ANN401 - JSON
        """Return the answer's JSON; ``timeout`` is the budget in seconds, including waits.

        ``decode`` decodes the required part of it.

        Raises:
            KubeError: the error of the server, or Unavailable.
            NotLeading: the guard refused a write.
        """
        reply = await self.reply(call, request, timeout=timeout)
        try:
            return await parse(reply.body, decode)
        except orjson.JSONDecodeError:
            raise unavailable(call, f"the answer of {self.transport.server} is not JSON") from None

    async def reply(self, call: Call, request: HttpRequest, *, timeout: float) -> Reply:  # noqa: ASYNC109
        """Return a successful answer without parsing it; raises as ``call``."""
        deadline = asyncio.get_running_loop().time() + timeout
        with self._span(call, request.method) as span:
            try:
                async with asyncio.timeout_at(deadline):
                    reply = await self._until_answered(call, request, deadline)
            except TimeoutError:
                self.contact.failed()
                self._count(call, "timeout")
                error = unavailable(call, f"no answer from {self.transport.server} within {timeout:g} s")
                _set_error(span, error)
                raise error from None
            except KubeError as error:
                _set_error(span, error)
                raise
            span.set_attribute("http.response.status_code", reply.status)
            return reply

    @asynccontextmanager
    async def stream(self, call: Call, request: HttpRequest, *, idle_seconds: float) -> AsyncIterator[Stream]:
        """Open a stream; raises KubeError if it is refused, disconnected, or idle for ``idle_seconds``."""
        try:
            as_user = self._as_user(request, request.check)
            async with self.transport.stream(as_user, idle_seconds=idle_seconds) as stream:
                self.contact.answered()
                self._note_time(stream.status, stream.headers)
                self._count(call, str(stream.status))
                if stream.status >= 400:
                    body = b"".join([line async for line in stream.lines])
                    if stream.status == 401:
                        await self.transport.renew_credentials()
                    raise error_from(call, stream.status, body, stream.headers)
                yield stream
        except ConnectionFailed as failure:
            # Not counted as loss of contact: a single watch can fail; other calls show whether the server answers.
            self._count(call, "error")
            raise unavailable(call, str(failure)) from None

    async def _until_answered(self, call: Call, request: HttpRequest, deadline: float) -> Reply:
        tries = _READ_TRIES if request.method == "GET" else 1
        renewed = False
        attempts = Attempts()
        while True:
            try:
                reply = await self._attempt(call, request)
            except Unavailable:
                tries -= 1
                if tries < 1:
                    raise
                await asyncio.sleep(attempts.next())
                continue
            if reply.status < 400:
                return reply
            error = error_from(call, reply.status, reply.body, reply.headers)
            if reply.status == 401 and not renewed:
                renewed = True
                await self._renew(call)
            elif isinstance(error, TooManyRequests):
                await self._wait_as_requested(error, deadline)
            elif isinstance(error, Unavailable) and tries > 1:
                tries -= 1
                await asyncio.sleep(attempts.next())
            else:
                raise error

    async def _attempt(self, call: Call, request: HttpRequest) -> Reply:
        # The guard is checked again before the first byte: waiting for a connection can exceed the lease.
        check = self.guard if self.guard is not None and request.method != "GET" else request.check
        if check is not None:
            check()
        try:
            reply = await self.transport.send(self._as_user(request, check))
        except ConnectionFailed as failure:
            self.contact.failed()
            self._count(call, "error")
            raise unavailable(call, str(failure)) from None
        except AnswerTooLong:
            self.contact.answered()
            self._count(call, "toolong")
            raise too_large(call, request.most or 0) from None
        self.contact.answered()
        self._note_time(reply.status, reply.headers)
        self._count(call, str(reply.status))
        return reply

    def _as_user(self, request: HttpRequest, check: Callable[[], None] | None) -> HttpRequest:
        if self.token:
            return request.sent_with(check, {"Authorization": f"Bearer {self.token}"})
        if self.user:
            groups = [(IMPERSONATE_GROUP, group) for group in self.groups]
            return request.sent_with(check, {IMPERSONATE: self.user}, *groups)
        return request if check is request.check else request.sent_with(check, {})

    async def _renew(self, call: Call) -> None:
        try:
            await self.transport.renew_credentials()
        except ConnectionFailed as failure:
            raise unavailable(call, str(failure)) from None

    async def _wait_as_requested(self, error: TooManyRequests, deadline: float) -> None:
        """Wait as long as the server requests; it refused before processing, so a write can be repeated."""
        # Longer than requested, never shorter, with jitter: concurrent requests were refused with the same delay.
        wait = (error.retry_after or self.timings.retry_after) * random.uniform(1.0, 1.5)  # noqa: S311 - spreads load, guards no secret
        if asyncio.get_running_loop().time() + wait >= deadline:
            raise error
        await asyncio.sleep(wait)

    def _note_time(self, status: int, headers: Mapping[str, str]) -> None:
        if status < _NOT_ITS_OWN:
            self.clock.answered(headers.get("Date"))

    def _count(self, call: Call, code: str) -> None:
        self.telemetry.metrics.kube_requests_total.labels(self.telemetry.service, call.verb, call.plural, code).inc()

    @contextlib.contextmanager
    def _span(self, call: Call, method: str) -> Iterator[trace.Span]:
        """Open a CLIENT span, only inside a recorded span."""
        if not trace.get_current_span().is_recording():
            yield trace.INVALID_SPAN
            return
        attributes = {
            "http.request.method": method,
            "server.address": self.transport.server,
            "k8s.resource": call.plural,
            "k8s.namespace.name": call.namespace,
            "k8s.object.name": call.name,
        }
        present = {key: value for key, value in attributes.items() if value}
        with self.telemetry.tracer.start_as_current_span(
            f"kubernetes {call.verb} {call.plural}",
            kind=SpanKind.CLIENT,
            attributes=present,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span


def _set_error(span: trace.Span, error: KubeError) -> None:
    span.set_attribute("http.response.status_code", error.status)
    span.set_attribute("error.type", error.reason)
    # Without the server's message for Secrets, which can contain invalid values.
    span.set_status(StatusCode.ERROR, error.reason if error.call.plural in _SECRET else str(error))
