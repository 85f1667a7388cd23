"""A NATS client that survives malformed stored messages and flushes in order.

In: data from the server. Out: messages. The base class of ``trellis.bus.connection.user_client``, which all connections
use. Invariants: every message of a stream is delivered, and the reader decides about malformed ones; commands are sent
in the order of the calls.

Three kinds of stored messages stop nats-py 2.16 for as long as they are in the stream: a subject that is not UTF-8
ends its read loop; a vertical tab or form feed in a subject does not match its expression for a protocol line; a header
``Status`` is treated as a status of the server. A fourth, stored or not, ends its read loop: headers whose first line
has text after the version that is not UTF-8, or is truncated. The server accepts all of them from any publisher.

nats-py writes PING at once, before pending commands: the server answers a flush, and the end of a drained subscription,
before it receives the flushed commands, and messages that arrive in between are dropped. The answer to a flush that was
cancelled ends its read loop.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from nats.aio.client import PING_PROTO, Client
from nats.aio.msg import Msg
from nats.protocol import parser

STATUS_OF_MESSAGE: Final = "Original-Status"
"""New name of the header ``Status`` of a stored message."""

_STATUS: Final = "Status"
# Reply subjects of messages from a stream; status messages of the server have none.
_STORED_REPLY: Final = b"$JS.ACK."
_WORD: Final = rb"([^ \t\r\n]+)[ \t]+"

# The parser reads its expressions there. Source: NATS client protocol, fields are separated by spaces and tabs.
parser.MSG_RE = re.compile(rb"\AMSG[ \t]+" + _WORD + _WORD + rb"(" + _WORD + rb")?(\d+)\r\n")
parser.HMSG_RE = re.compile(rb"\AHMSG[ \t]+" + _WORD + _WORD + rb"(" + _WORD + rb")?(\d+)[ \t]+(\d+)\r\n")


class RobustNatsClient(Client):
    """The library's client with its own message parsing, PING and PONG handling."""

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        self._pongs.append(asyncio.Future() if future is None else future)
        self._pending.append(PING_PROTO)  # regardless of the pending size: a PING checks that the server responds
        self._pending_data_size += len(PING_PROTO)
        await self._flush_pending()

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.Future()
        await super()._process_pong()

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        # No caller waits for their answers any more, and they would be matched to later PINGs.
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
            # The library uses an enum member as a header name, which is not a valid JSON key.
            headers = {str.__str__(name): value for name, value in headers.items()}
            if _STATUS in headers:
                headers[STATUS_OF_MESSAGE] = headers.pop(_STATUS)
        subject_text, reply_text = (raw.decode(errors="backslashreplace") for raw in (subject, reply))
        return Msg(self, subject_text, reply_text, data, headers, _sid=sid)
