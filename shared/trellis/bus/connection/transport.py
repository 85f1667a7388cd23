"""NATS' connection over TCP: one socket, which is released when it is no longer used, whatever state it is in.

In: a server's address. Out: a connection, perhaps by TLS, and its end. Called by
``trellis.bus.connection.user_client``. Invariants: an attempt that fails, or is given up, leaves no socket; an end is
waited for two seconds at most.

nats-py 2.16 reconnects over what failed, and leaves the former socket to the collector of garbage. It waits forever
for the end of a connection on which TLS failed: nobody tells that to its half that knew no TLS. On one that succeeded
asyncio waits 30 s for the goodbye of a far side that is frozen or cut off. And wait_for of Python 3.11 drops the
connection that comes together with a cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

_FIRST_WORDS: Final = b"CONNECT "


class NoDelayTransport(TcpTransport):
    """Made again for each attempt to connect."""

    def __init__(self, goodbye: float) -> None:
        """``goodbye``: seconds that the end may take after ``close``."""
        super().__init__()  # type: ignore[no-untyped-call] # the library lacks the annotation
        self._goodbye = goodbye
        self._gone = False
        self._shaking_hands = False
        self._held = b""

    def write(self, payload: bytes) -> None:
        """Send this; the client's first words go together with the ping that follows them at once.

        A server that has no room for a connection says so with its own first words, and hangs up. By what comes after
        that asyncio knows that the connection is lost, and reads nothing more of what had arrived.
        """
        if payload.startswith(_FIRST_WORDS):
            self._held = payload
            return
        super().write(self._held + payload if self._held else payload)  # type: ignore[no-untyped-call] # as above
        self._held = b""

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect by TCP; raises OSError, TimeoutError after so many seconds."""
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(uri.hostname, uri.port, limit=buffer_size)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """Go on by TLS; raises OSError, TimeoutError after so many seconds, and then there is no connection."""
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
        if tls is None:  # what asyncio has for a connection that is released in the meantime
            raise ConnectionResetError("the connection ended before TLS was agreed on")
        self._io_reader, self._io_writer = reader, asyncio.StreamWriter(tls, protocol, reader, loop)
        self._shaking_hands = False

    def close(self) -> None:
        """Begin the end; what was written is sent before."""
        if self._shaking_hands:
            self.abort()  # its end would not be told
        else:
            super().close()  # type: ignore[no-untyped-call] # as above

    async def wait_closed(self) -> None:
        """Wait for the end after ``close``; the reason of an end is told by what read or wrote."""
        if not self._gone:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._goodbye):
                    await super().wait_closed()  # type: ignore[no-untyped-call] # as above
        self.abort()

    def abort(self) -> None:
        """Let go of the socket at once; what was not sent yet is lost."""
        self._gone = True
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                writer.transport.abort()
