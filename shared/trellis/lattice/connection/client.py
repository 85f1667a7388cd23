"""NATS client for an untrusted server: bounds the memory that its messages use.

In: data of a server. Out: a connection, or its end with a reason. Called by
``trellis.lattice.connection.lattice_connection``. Invariants: no message is larger than ``LARGEST``, no line longer
than ``LONGEST``; a server cannot redirect to another server; an invalid INFO fails the connection. Source: NATS client
protocol. nats-py 2.16 buffers until a line or message is complete, of any announced size, and keeps every address of
``connect_urls``, which only its own reconnect uses.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import nats.errors
from nats.js import JetStreamContext
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from trellis.bus.connection.user_client import UserClient
from trellis.config.nats_credentials import IdentitySource

LARGEST: Final = 8 * 2**20
"""Maximum size of a message in bytes: nats-server warns of a larger ``max_payload``."""
LONGEST: Final = 256 * 2**10
"""Maximum size of a line of the protocol in bytes: the INFO of a cluster of hundreds of servers has some 10 KB."""
_NO_INFO: Final = "the server at this address is not a NATS server: its INFO cannot be parsed"


class TooMuchError(nats.errors.ProtocolError):
    """A message or line of the server exceeds the limit; errors of this kind of the library have no message."""

    def __str__(self) -> str:
        return str(self.args[0])


class _BoundedParser(Parser):
    async def parse(self, data: bytes = b"") -> None:
        await super().parse(data)
        if self.state == AWAITING_CONTROL_LINE:
            if len(self.buf) > LONGEST:
                await self._end(f"the server sends a line of more than {LONGEST} bytes")
        elif self.needed > LARGEST or self.header_needed > self.needed:
            await self._end(f"the server sends a message of {self.needed} bytes, the limit is {LARGEST}")

    async def _end(self, reason: str) -> None:
        """Report the reason, then make the read loop end the connection; the loop itself reports no reason."""
        error = TooMuchError(reason)
        self.reset()
        await self.nc._error_cb(error)  # noqa: SLF001 - the library's parser calls its client so
        raise error


class UntrustedNatsClient(UserClient):
    """The client of a lattice connection; callers must disable its own reconnect.

    ``encrypted``: a server without TLS is refused, also if its URL does not require TLS.
    """

    def __init__(self, credentials: IdentitySource | None, *, encrypted: bool = False) -> None:
        super().__init__(credentials)
        self._ps = _BoundedParser(self)
        self._encrypted = encrypted

    @functools.cached_property
    def streams(self) -> JetStreamContext:
        """The JetStream of this connection. The library would create another object of 1.4 KiB for each caller."""
        return self.jetstream()

    @property
    def _requires_tls(self) -> bool:
        return self._encrypted or super()._requires_tls

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except OSError:  # an untrusted certificate is also a ValueError
            raise
        except (AttributeError, KeyError, TypeError, ValueError):  # the library does not validate INFO
            raise nats.errors.Error(_NO_INFO) from None

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        info.pop("connect_urls", None)
        most = info.get("max_payload", 0)
        if type(most) is not int or most < 0:
            raise nats.errors.Error(_NO_INFO)
        await super()._process_info(info, initial_connection)
