"""Receives messages of subjects for a bounded time, and publishes nothing.

In: an address, subjects with their handlers. Out: the time of uninterrupted reception, or why there was none. Called by
commands. Invariants: nothing is published, and no request is sent; there is no reconnect, because messages in between
would be missing; a flood ends nothing, because handlers do constant work: dropped messages are counted.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import nats.errors
from nats.aio.msg import Msg

from trellis.bus.connection.connection import describe
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.client import UntrustedNatsClient
from trellis.lattice.connection.subscriptions import TROUBLE, MessageHandler
from trellis.lattice.connection.tls import CertificateError, client_context
from trellis.lattice.timings import ListenTimings

PENDING_BYTES: Final = 64 * 2**20
PENDING_MESSAGES: Final = 100_000
"""Bounds of the messages that wait for a handler: ten seconds of 10,000 heartbeats of 2 KiB a second, and slack."""
_UNUSABLE: Final = "the certificates and the key have to be PEM, without a password"


@dataclass(frozen=True, slots=True)
class Listened:
    """``seconds``: uninterrupted reception; ``dropped``: at least so many messages were lost by the client.

    ``error``: why it failed or ended early, without credentials; "" if it did not. ``untrusted``: the reason is the
    certificate of the server. ``denied``: reasons by subject, if the server denied some of the subscriptions;
    ``refused``: it denied all of them, and ``error`` is the reason.
    """

    seconds: float = 0.0
    dropped: int = 0
    error: str = ""
    denied: Mapping[str, str] = field(default_factory=dict)
    untrusted: bool = False
    refused: bool = False


async def listen(
    address: NatsAddress,
    name: str,
    handlers: Mapping[str, MessageHandler],
    enough: Callable[[], bool],
    timings: ListenTimings = ListenTimings(),
) -> Listened:
    """Call the handlers for the messages of their subjects until the time is over, or ``enough`` returns True.

    ``name``: name of the connection in NATS' monitoring. Errors of the connection are in the result; none is raised.
    """
    encrypted = bool(address.authorities or address.certificate)
    listening = _Listening(UntrustedNatsClient(address.credentials, encrypted=encrypted), timings, handlers)
    try:
        async with asyncio.timeout(timings.connect):
            await listening.connect(address, name)
            await listening.subscribe()
            await listening.client.flush(timings.connect)
    except CertificateError:
        return Listened(error=_UNUSABLE)
    except (*TROUBLE, ValueError, TypeError) as error:
        cause = listening.failures[-1] if listening.failures else error
        untrusted = isinstance(cause, ssl.SSLCertVerificationError)
        return Listened(error=f"{redact_url(address.url)}: {describe(cause)}", untrusted=untrusted)
    else:
        return await listening.receive(enough)
    finally:
        await listening.client.close_permanently(timings.goodbye)


class _Listening:
    """One connection."""

    def __init__(
        self, client: UntrustedNatsClient, timings: ListenTimings, handlers: Mapping[str, MessageHandler]
    ) -> None:
        self.client = client
        self._handlers = handlers
        self.failures: list[Exception] = []
        self._timings = timings
        self._dropped = 0
        self._ended = asyncio.Event()

    async def connect(self, address: NatsAddress, name: str) -> None:
        connected = False

        async def on_error(error: Exception) -> None:
            if isinstance(error, nats.errors.SlowConsumerError):
                self._dropped += 1
                return
            self.failures.append(error)
            if not connected:
                raise error  # the library would retry forever

        async def on_closed() -> None:
            self._ended.set()

        await self.client.connect(
            servers=address.servers,
            name=name,
            allow_reconnect=False,
            connect_timeout=self._timings.connect,
            tls=client_context(address),
            error_cb=on_error,
            closed_cb=on_closed,
        )
        connected = True

    async def subscribe(self) -> None:
        for subject, handler in self._handlers.items():
            await self.client.subscribe(
                subject,
                cb=_taking(handler),
                pending_bytes_limit=PENDING_BYTES,
                pending_msgs_limit=PENDING_MESSAGES,
            )

    @property
    def _denied(self) -> dict[str, str]:
        found = {subject: self.client.denied_of(subject) for subject in self._handlers}
        return {subject: reason for subject, reason in found.items() if reason}

    @property
    def _is_denied(self) -> bool:
        """True if each subscription is denied."""
        return bool(self.client.denied) and len(self._denied) == len(self._handlers)

    async def receive(self, enough: Callable[[], bool]) -> Listened:
        began = time.monotonic()
        ends = began + self._timings.listen
        while (now := time.monotonic()) < ends and not self._ended.is_set() and not self._is_denied and not enough():
            try:
                async with asyncio.timeout(min(self._timings.look, ends - now)):
                    await self._ended.wait()
            except TimeoutError:
                continue
        seconds = time.monotonic() - began
        if self._is_denied:
            return Listened(error=self.client.denied, refused=True)
        if self._ended.is_set():
            reason = describe(self.failures[-1]) if self.failures else "connection lost"
            return Listened(seconds, self._dropped, f"after {seconds:.0f} s: {reason}")
        return Listened(seconds, self._dropped, denied=self._denied)


def _taking(handler: MessageHandler) -> Callable[[Msg], Awaitable[None]]:
    async def take(message: Msg) -> None:
        handler(message.subject, message.data)

    return take
