"""HTTP transport to the API server: one request, or one stream of lines.

In: method, path, query, body. Out: status, headers and bytes. Called by ``trellis.kube.client`` only, which interprets
the answers; ``trellis_dev.fakes.fake`` has an in-memory ``Transport``. Invariant: every failure to get an answer is a
``ConnectionFailed`` that names the server, and every wait is bounded.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from trellis.kube.access import CONNECTIONS, Access, AccessError, Credentials, Session
from trellis.kube.body import Body
from trellis.kube.network_errors import network_reason
from trellis.kube.timings import ConnectionTimings

_LINE_MAX = 32 * 2**20
"""Bytes of one watch event; the API server refuses objects well below."""

# asyncio allocates a resident buffer of 256 KiB per TLS connection: 13 MiB for the 50 connections of all services. Two
# TLS records of 16 KiB are enough; libraries have no option for this.
TLS_BUFFER_BYTES = 32 * 2**10
SSLProtocol.max_size = TLS_BUFFER_BYTES

_NO_ANSWER = (aiohttp.ClientError, OSError, AccessError)


class ConnectionFailed(Exception):  # noqa: N818 - named after the outcome, as the errors created from it
    """There is no answer: connection refused or closed, TLS error, or timeout."""


class AnswerTooLong(Exception):  # noqa: N818 - named after the outcome
    """An answer exceeds the maximum size; the rest of it was not read."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; ``path`` is already escaped, ``body`` already encoded.

    ``headers`` extend or replace the default headers; ``more``: headers that can be repeated. ``check`` is called
    before each attempt of a read, and before the first byte of the body of a write is sent; its exception is raised by
    the call. ``most``: maximum bytes of a successful answer; None: no limit.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    more: tuple[tuple[str, str], ...] = ()
    check: Callable[[], None] | None = None
    most: int | None = None

    def sent_with(self, check: Callable[[], None] | None, headers: Mapping[str, str], *more: tuple[str, str]) -> Self:
        """Return the request with additional headers, and with another ``check``.

        Field by field, because ``dataclasses.replace`` is several times slower, and this is called per request.
        """
        merged = {**self.headers, **headers} if headers else self.headers
        return type(self)(
            self.method,
            self.path,
            self.query,
            self.body,
            self.content_type,
            merged,
            (*self.more, *more),
            check,
            self.most,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stream:
    """A streamed answer: lines without their line ends, until the server ends it."""

    status: int
    headers: Mapping[str, str]
    lines: AsyncIterator[bytes]


class Transport(Protocol):
    """Interface of a connection for the client."""

    @property
    def server(self) -> str:
        """Address, for messages."""

    async def send(self, request: HttpRequest) -> Reply:
        """Return the complete answer with any status; raises ConnectionFailed, AnswerTooLong."""

    def stream(self, request: HttpRequest, *, idle_seconds: float) -> AbstractAsyncContextManager[Stream]:
        """Open a stream; it and its lines raise ConnectionFailed, also after ``idle_seconds`` without data."""

    async def renew_credentials(self) -> None:
        """Re-read the credentials after the server rejected them; raises ConnectionFailed if they are unusable."""

    def apart(self, connections: int) -> Transport:
        """Return a transport to the same server with separate connections. The caller closes it."""

    async def close(self) -> None:
        """Close all connections."""


class HttpTransport:
    """Transport over HTTP: aiohttp with the client library's TLS session."""

    def __init__(
        self,
        credentials: Credentials,
        user_agent: str,
        connections: int = CONNECTIONS,
        timings: ConnectionTimings = ConnectionTimings(),
    ) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._connections = connections
        self._timings = timings
        # The caller limits the time; only the connection setup has a timeout here.
        self._limits = aiohttp.ClientTimeout(sock_connect=timings.connect)
        self._session: Session = credentials.open_session(connections)
        self._tls = credentials.tls
        self._renewal: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        access: Access,
        user_agent: str,
        timings: ConnectionTimings = ConnectionTimings(),
    ) -> HttpTransport:
        """Load credentials and open a session, without a request; raises AccessError.

        ``user_agent`` appears in the audit log of the cluster.
        """
        credentials = Credentials(access, timings)
        await credentials.load()
        return cls(credentials, user_agent, timings=timings)

    @property
    def server(self) -> str:
        """Address of the API server: ``https://host:port``."""
        return self._credentials.server

    def apart(self, connections: int) -> HttpTransport:
        """Return a transport with separate connections, so that requests do not wait for each other.

        Raises:
            AccessError: a certificate or key cannot be loaded.
        """
        return HttpTransport(self._credentials, self._user_agent, connections, self._timings)

    async def send(self, request: HttpRequest) -> Reply:
        """Return the complete answer with any status.

        Raises:
            ConnectionFailed: there is no answer.
            AnswerTooLong: the answer has more bytes than ``request.most``.
        """
        try:
            async with await self._open(request, self._limits) as response:
                return Reply(response.status, await _body(response, request.most), response.headers)
        except _NO_ANSWER as error:
            raise self._failure(error) from None

    @asynccontextmanager
    async def stream(self, request: HttpRequest, *, idle_seconds: float) -> AsyncIterator[Stream]:
        """Open a stream of lines of any length; ``idle_seconds`` without data are a failure (half-open connection).

        Raises:
            ConnectionFailed: on opening, or from the lines.
        """
        # `sock_read` limits each wait for data.
        timeout = aiohttp.ClientTimeout(sock_connect=self._timings.connect, sock_read=idle_seconds)
        try:
            async with asyncio.timeout(self._timings.open):
                response = await self._open(request, timeout)
        except _NO_ANSWER as error:
            raise self._failure(error) from None
        try:
            yield Stream(response.status, response.headers, self._lines(response))
        finally:
            response.close()

    async def renew_credentials(self) -> None:
        """Re-read the credentials, once for concurrent callers; open a new session if certificates changed.

        Raises:
            ConnectionFailed: the credentials cannot be read.
        """
        try:
            await self._renewed()
        except AccessError as error:
            raise ConnectionFailed(str(error)) from None
        self._credentials.refused()

    async def close(self) -> None:
        """Close all connections; streams end with ConnectionFailed."""
        await self._session.close()

    async def _renewed(self) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(), name="renew credentials")
        await asyncio.shield(self._renewal)

    async def _renew(self) -> None:
        await self._credentials.load()
        if self._credentials.tls != self._tls:
            old, self._session = self._session, self._credentials.open_session(self._connections)
            self._tls = self._credentials.tls
            await old.close()

    async def _open(self, request: HttpRequest, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Send a request; after a TLS error, re-read the certificates and retry once."""
        if self._credentials.due():
            await self._renewed()
        session = self._session
        try:
            return await self._ask(session, request, limits)
        except aiohttp.ClientSSLError:
            # The files may have been rotated. There was no connection, so the request was not sent.
            if session is self._session:
                await self._renewed()
            if session is self._session:
                raise
        return await self._ask(self._session, request, limits)

    async def _ask(
        self, session: Session, request: HttpRequest, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = CIMultiDict({"Accept": "application/json", "User-Agent": self._user_agent})
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        if self._credentials.nearby:
            # As in kube-controller-manager: gzip takes longer than the transfer over a network of a cluster.
            headers["Accept-Encoding"] = "identity"
        headers.update(request.headers)
        headers.extend(request.more)
        url = URL(f"{self.server}{request.path}", encoded=True)
        if request.query:
            url = url.with_query(request.query)
        body = None if request.body is None else Body(request.body, request.content_type, request.check)
        try:
            return await session.http.request(
                request.method, url, data=body, headers=headers, timeout=limits, **session.options
            )
        except aiohttp.ClientError:
            if body is not None and body.refusal is not None:
                raise body.refusal from None
            raise

    async def _lines(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        # Lines are split here, because StreamReader.readline rejects lines longer than its buffer.
        pending = bytearray()
        try:
            async for chunk in response.content.iter_any():
                *lines, rest = chunk.split(b"\n")
                for line in lines:
                    whole = bytes(pending) + line if pending else line
                    pending.clear()
                    if whole:
                        yield whole
                pending += rest
                if len(pending) > _LINE_MAX:
                    raise ConnectionFailed(f"{self.server} sent a line of more than {_LINE_MAX} bytes")
        except _NO_ANSWER as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> ConnectionFailed:
        if isinstance(error, TimeoutError):
            return ConnectionFailed(f"no answer from {self.server}")
        if isinstance(error, AccessError):
            return ConnectionFailed(str(error))
        return ConnectionFailed(f"{self.server} is unreachable: {network_reason(error)}")


async def _body(response: aiohttp.ClientResponse, most: int | None) -> bytes:
    """Read an answer; if it exceeds ``most``, close the connection without buffering the rest."""
    if most is None or response.status >= 400:
        return await response.read()
    found = bytearray()
    async for chunk in response.content.iter_any():
        found += chunk
        if len(found) > most:
            response.close()
            raise AnswerTooLong
    return bytes(found)
