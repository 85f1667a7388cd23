"""The TCP transport of NATS: one socket, which is released in every state once it is unused.

In: the address of a server. Out: a connection, optionally with TLS, and its close. Called by
``trellis.bus.connection.user_client``. Invariants: a failed or cancelled attempt leaves no socket open; closing waits
for two seconds at most.

nats-py 2.16 opens a connection after a failed one and leaves the previous socket to the garbage collector. It waits
forever for the end of a connection whose TLS handshake failed: the plain TCP stream is not notified. After a successful
handshake asyncio waits 30 s for the TLS shutdown of a frozen or unreachable peer. wait_for of Python 3.11 drops the
connection if a cancellation arrives at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

_CONNECT_PREFIX: Final = b"CONNECT "


class NoDelayTransport(TcpTransport):
    """The transport of one connection attempt."""

    def __init__(self, goodbye: float) -> None:
        """Set the timeout of ``wait_closed`` to ``goodbye`` seconds."""
        super().__init__()  # type: ignore[no-untyped-call] # the library lacks the annotation
        self._goodbye = goodbye
        self._lost = False
        self._shaking_hands = False
        self._buffered = b""

    def write(self, payload: bytes) -> None:
        """Send the payload; CONNECT is sent together with the PING that follows it.

        A server at its connection limit sends its error first and closes the connection. A second write after that
        would make asyncio drop the received data, and with it the error.
        """
        if payload.startswith(_CONNECT_PREFIX):
            self._buffered = payload
            return
        super().write(self._buffered + payload if self._buffered else payload)  # type: ignore[no-untyped-call] # as above
        self._buffered = b""

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect over TCP; raises OSError, or TimeoutError after ``connect_timeout`` seconds."""
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(uri.hostname, uri.port, limit=buffer_size)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """Upgrade to TLS; raises OSError, or TimeoutError after ``connect_timeout`` seconds, and closes the socket."""
        assert self._bare_io_writer is not None, "connect comes first"
        host = uri if isinstance(uri, str) else uri.hostname
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=buffer_size)
        protocol = asyncio.StreamReaderProtocol(reader)
        self._shaking_hands = True
        try:
            async with asyncio.timeout(connect_timeout):
                tls = await loop.start_tls(self._bare_io_writer.transport, protocol, ssl_context, server_hostname=host)
        except BaseException:
            self.abort()
            raise
        if tls is None:  # the result of asyncio for a connection that was closed in the meantime
            raise ConnectionResetError("the connection ended before TLS was agreed on")
        self._io_reader, self._io_writer = reader, asyncio.StreamWriter(tls, protocol, reader, loop)
        self._shaking_hands = False

    def close(self) -> None:
        """Start closing; written data is sent first."""
        if self._shaking_hands:
            self.abort()  # asyncio would not report the end
        else:
            super().close()  # type: ignore[no-untyped-call] # as above

    async def wait_closed(self) -> None:
        """Wait for the end after ``close``; the reads and writes raise the reason of the end."""
        if not self._lost:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._goodbye):
                    await super().wait_closed()  # type: ignore[no-untyped-call] # as above
        self.abort()

    def abort(self) -> None:
        """Release the socket at once; unsent data is lost."""
        self._lost = True
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                writer.transport.abort()
