"""NATS' client, made so that no stored message can deafen it, and that what it flushes has arrived.

In: what the server sends. Out: messages. The base of ``trellis.bus.connection.user_client``, which everybody connects
with. Invariants: whatever stands in a stream is handed over as a message: garbage is for the reader to judge; nothing
overtakes what was sent before it.

Three kinds of stored messages deafen nats-py 2.16 for as long as they are in the stream: a subject that is no UTF-8
ends its reading loop; a vertical tab or form feed in a subject does not fit its expression for a line of the protocol;
a header ``Status`` is taken for the server's own word. A fourth, stored or not, ends its reading loop: headers whose
first line has something behind the version that is no UTF-8, or is cut short. The server takes all from any publisher.

It writes PING at once, past what still waits to be written: a flush, and with it the end of a subscription that is
drained, is answered before the server knows of what was to be flushed, and what arrives in between is dropped. And the
answer to a flush that nobody waits for any more ends its reading loop.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from nats.aio.client import PING_PROTO, Client
from nats.aio.msg import Msg
from nats.protocol import parser

STATUS_OF_MESSAGE: Final = "Original-Status"
"""Name under which a stored message's own header ``Status`` is handed over."""

_STATUS: Final = "Status"
# Reply subjects of messages that come out of a stream; the server's own words have none.
_STORED_REPLY: Final = b"$JS.ACK."
_WORD: Final = rb"([^ \t\r\n]+)[ \t]+"

# The parser looks its expressions up there. Source: NATS client protocol, fields are separated by spaces and tabs.
parser.MSG_RE = re.compile(rb"\AMSG[ \t]+" + _WORD + _WORD + rb"(" + _WORD + rb")?(\d+)\r\n")
parser.HMSG_RE = re.compile(rb"\AHMSG[ \t]+" + _WORD + _WORD + rb"(" + _WORD + rb")?(\d+)[ \t]+(\d+)\r\n")


class RobustNatsClient(Client):
    """The library's client, but for how it makes messages of what it receives, and how it sends PING and takes PONG."""

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        self._pongs.append(asyncio.Future() if future is None else future)
        self._pending.append(PING_PROTO)  # at once, however much waits: what it asks for is whether the server is there
        self._pending_data_size += len(PING_PROTO)
        await self._flush_pending()

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.Future()
        await super()._process_pong()

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        # Their answers are awaited no more: they would be taken for those of later ones.
        self._pending = [command for command in self._pending if command != PING_PROTO]

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError):
            return None
        return found

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        if headers and reply.startswith(_STORED_REPLY):
            # The library's name for what stands behind the version is an enumeration's, which is no key of JSON.
            headers = {str.__str__(name): value for name, value in headers.items()}
            if _STATUS in headers:
                headers[STATUS_OF_MESSAGE] = headers.pop(_STATUS)
        subject_text, reply_text = (raw.decode(errors="backslashreplace") for raw in (subject, reply))
        return Msg(self, subject_text, reply_text, data, headers, _sid=sid)
