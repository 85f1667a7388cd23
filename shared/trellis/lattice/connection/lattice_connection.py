"""A connection to the NATS of lattices with its state: connected, lost, restored.

In: an address with credentials, subjects to subscribe to. Out: messages, answers, and notifications of changes. Called
by ``trellis.lattice.follow.lattice_watches``, which pools connections. Invariants: reconnects never stop, with full
jitter, at most 0.5 to 30 s apart; an outage logs one warning; each connection is a separate client, so no state of a
dead one remains; no caller waits for it: requests on a lost connection fail at once; a connection whose message rate
exceeds the bound counts as unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import nats.errors
from nats.js import JetStreamContext

from trellis.bus.connection import cancellation
from trellis.bus.connection.connection import REFUSED, describe
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.client import UntrustedNatsClient
from trellis.lattice.connection.flood import Flood
from trellis.lattice.connection.requests import RequestHandler, RequestSubscription
from trellis.lattice.connection.subscriptions import (
    PENDING_BYTES,
    PENDING_MESSAGES,
    TROUBLE,
    Answers,
    MessageHandler,
    Subscriptions,
)
from trellis.lattice.connection.tls import NOT_LET_IN, CertificateError, advised, client_context
from trellis.lattice.domain.errors import (
    NatsUnavailableError,
    NoLatticeRespondersError,
    SilenceError,
    TooLargeError,
    require_payload_limit,
)
from trellis.lattice.domain.outage import Outage
from trellis.lattice.timings import ConnectionTimings
from trellis.limits.backoff import Backoff
from trellis.telemetry import get_logger

__all__ = [
    "INBOX",
    "LatticeConnection",
    "MessageHandler",
    "NatsUnavailableError",
    "NoLatticeRespondersError",
    "SilenceError",
    "TooLargeError",
]

INBOX: Final = "_INBOX_trellis"
_UNANSWERED_PINGS: Final = 2
_UNUSABLE: Final = "its address is invalid: natsAddress is a URL without a port, natsClientPort has the port"

_log = get_logger(__name__)


class LatticeConnection:
    """A lattice connection. ``changed`` is called in the event loop whenever it is lost or established."""

    def __init__(
        self,
        address: NatsAddress,
        name: str,
        changed: Callable[[], None],
        timings: ConnectionTimings = ConnectionTimings(),
    ) -> None:
        self._timings = timings
        self._attempts = Backoff(first=timings.backoff_first, cap=timings.backoff_most)
        self._address = address
        self._name = name
        self._changed = changed
        self._client: UntrustedNatsClient | None = None
        self._flood = Flood(timings.flood)
        self._subscriptions = Subscriptions(self._flood.came)
        self._request_subscriptions: dict[str, RequestSubscription] = {}
        self._outage = Outage("not connected yet", timings.outage)
        self._warned = False
        # Only the last one: a server may send errors forever.
        self._complaints: deque[Exception] = deque(maxlen=1)
        self._tried = False
        self._arrived = asyncio.Event()
        self.since: float | None = None
        """Start of the uninterrupted connection, in seconds of the monotonic clock; None while it is unreachable."""
        self.subscription_denied = ""
        """Reason of a denied subscription on an established connection. Empty if none is denied."""

    @property
    def reason(self) -> str:
        """The reason why it is unreachable, or a subscription is denied; empty if neither applies."""
        reason = self.subscription_denied if self.since is not None else self._outage.reason
        return f"{reason} ({redact_url(self._address.url)})" if reason else ""

    @property
    def tried(self) -> bool:
        """True after the first connect, successful or not."""
        return self._tried

    @property
    def receiving_since(self) -> float | None:
        """Start of uninterrupted reception on all subscriptions (monotonic seconds); None without it."""
        return None if self.subscription_denied else self.since

    @property
    def limit(self) -> int:
        """Maximum size of a message in bytes; raises NatsUnavailableError while the server is unreachable."""
        return self._there().max_payload

    async def there(self) -> None:
        """Wait until the connection is established."""
        await self._arrived.wait()

    def jetstream(self) -> JetStreamContext:
        """Return the JetStream context of the current connection.

        Raises:
            NatsUnavailableError: the server is unreachable.
        """
        return self._there().streams

    async def listen(self, subject: str, handler: MessageHandler) -> None:
        """Subscribe to a subject; the subscription is restored after each outage."""
        await self._subscriptions.add(subject, handler, self._client)

    async def ignore(self, subject: str, handler: MessageHandler) -> None:
        """Unsubscribe a handler from a subject."""
        await self._subscriptions.drop(subject, handler)

    async def publish(self, subject: str, payload: bytes) -> None:
        """Publish a message, without confirmation of its delivery.

        Raises:
            NatsUnavailableError: the server is unreachable.
        """
        try:
            await self._there().publish(subject, payload)
        except TROUBLE as error:
            raise NatsUnavailableError(f"{subject}: {describe(error)}") from None

    async def ask(
        self, subject: str, payload: bytes = b"", *, seconds: float, headers: dict[str, str] | None = None
    ) -> bytes:
        """Send a request and return the first answer.

        Raises:
            NoLatticeRespondersError: the subject has no responders. SilenceError: no answer arrived in time.
            NatsUnavailableError: the server is unreachable.
            TooLargeError: the message exceeds the limit of the server.
        """
        client = self._there()
        require_payload_limit(client.max_payload, subject, payload, headers)
        try:
            answer = await client.request(subject, payload, timeout=seconds, headers=headers)
        except nats.errors.NoRespondersError:
            raise NoLatticeRespondersError(f"no responders on {subject}") from None
        except TimeoutError as error:
            raise SilenceError(f"{subject}: {describe(error)}") from None
        except TROUBLE as error:
            raise NatsUnavailableError(f"{subject}: {describe(error)}") from None
        cancellation.check()  # otherwise a cancelled caller would continue until its next check
        return answer.data

    async def ask_all(self, subject: str, *, seconds: float, most: int) -> list[bytes]:
        """Return the answers that arrive within ``seconds``, at most ``most``; there may be none.

        Raises:
            NatsUnavailableError: the server is unreachable.
        """
        client = self._there()
        answers = Answers(most)
        inbox = client.new_inbox()
        try:
            subscription = await client.subscribe(
                inbox, cb=answers.take, pending_bytes_limit=PENDING_BYTES, pending_msgs_limit=PENDING_MESSAGES
            )
            await client.publish(subject, reply=inbox)
            await asyncio.sleep(seconds)  # the number of responders is unknown: the protocol waits a fixed time
            await subscription.unsubscribe()
        except TROUBLE as error:
            raise NatsUnavailableError(f"{subject}: {describe(error)}") from None
        return answers.taken

    async def serve(self, subject: str, queue: str, handler: RequestHandler) -> None:
        """Serve requests on a subject, also after each outage; one member of the queue group ``queue`` gets each."""
        self._request_subscriptions[subject] = RequestSubscription(subject, queue, handler)
        if (client := self._client) is not None:
            await self._request_subscriptions[subject].open(client)

    async def close(self, subject: str, seconds: float) -> None:
        """Stop serving a subject; requests that the server sent before are still delivered."""
        if (counter := self._request_subscriptions.pop(subject, None)) is not None:
            await counter.close(seconds)

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        failures = 0
        try:
            while True:
                cancellation.check()
                connected_at = time.monotonic()
                try:
                    await self._connect_once(failures)
                except TROUBLE as error:
                    self._lost(advised(describe(self._complaints[-1] if self._complaints else error)))
                except CertificateError as error:
                    self._lost(str(error))
                except (ValueError, TypeError):
                    # The configured address is invalid. The text of the error may contain a password.
                    self._lost(_UNUSABLE)
                # A connection that lasted counts as successful, also if it ended with an error.
                failures = 1 if time.monotonic() - connected_at > self._timings.look else failures + 1
                await asyncio.sleep(self._flood.pause() or self._attempts.delay(failures))
        finally:
            self.since = None
            self._arrived.clear()

    async def _connect_once(self, attempt: int) -> None:
        """Connect once, and return when the connection ends.

        Raises:
            nats.errors.Error, OSError, TimeoutError: the connect failed.
        """
        for server in self._address.servers:
            _ = urlsplit(server).port  # a ValueError for a second port; the error of the library names no remedy
        closed = self._flood.watch()
        client = UntrustedNatsClient(self._address.credentials)
        try:
            async with asyncio.timeout(self._timings.connect):
                await self._connect(client, attempt, closed)
                await self._subscriptions.open(client)
                for counter in list(self._request_subscriptions.values()):
                    await counter.open(client)
                await client.flush(self._timings.connect)
            self._found()
            while not (closed.is_set() or client.is_closed):
                cancellation.check()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._timings.look):
                        await closed.wait()
                if client.denied and not client.is_closed:
                    await client.subscribe_again(self._timings.connect)
                    self._update_denied(client)
            complaint = advised(describe(self._complaints[-1])) if self._complaints else "connection lost"
            self._lost(self._flood.reason or complaint)
        finally:
            self._client = None
            self._subscriptions.closed()
            await client.close_permanently(self._timings.goodbye)

    async def _connect(self, client: UntrustedNatsClient, attempt: int, closed: asyncio.Event) -> None:
        connected = False
        self._complaints.clear()
        self.subscription_denied = ""

        async def on_error(error: Exception) -> None:
            self._complaints.append(error)
            if not connected:
                raise error  # ends this attempt; the library would retry forever with its own delays
            if client.denied and not self.subscription_denied:
                self._subscription_denied(client.denied)
            if isinstance(error, nats.errors.SlowConsumerError) and self._subscriptions.has(error.sub):
                self._flood.came(f"more messages wait on {error.sub.subject} than the buffer holds")

        async def on_closed() -> None:
            closed.set()

        servers = self._address.servers
        await client.connect(
            servers=[servers[attempt % len(servers)]],
            name=self._name,
            inbox_prefix=INBOX,
            allow_reconnect=False,
            connect_timeout=self._timings.connect,
            ping_interval=self._timings.ping,  # type: ignore[arg-type] # floats work
            max_outstanding_pings=_UNANSWERED_PINGS,
            tls=client_context(self._address),
            error_cb=on_error,
            closed_cb=on_closed,
        )
        connected = True
        self._client = client

    def _there(self) -> UntrustedNatsClient:
        if self._client is None or self.since is None:
            raise NatsUnavailableError(self.reason)
        return self._client

    def _subscription_denied(self, reason: str) -> None:
        if not self.subscription_denied:
            _log.warning("lattice NATS subscription denied", url=redact_url(self._address.url), reason=reason)
        self.subscription_denied = reason
        self._changed()

    def _update_denied(self, client: UntrustedNatsClient) -> None:
        """Update the denied subscriptions. Messages in the meantime are lost, as after an outage."""
        if client.denied == self.subscription_denied:
            return
        if client.denied:
            self._subscription_denied(client.denied)
            return
        self.subscription_denied, self.since = "", time.monotonic()
        _log.info("lattice NATS subscription permitted again", url=redact_url(self._address.url))
        self._changed()

    def _found(self) -> None:
        self.since, self._tried = time.monotonic(), True
        self._outage.over()
        self._arrived.set()
        if self._warned:
            self._warned = False
            _log.info("lattice NATS reachable again", url=redact_url(self._address.url))
        self._changed()

    def _lost(self, reason: str) -> None:
        # A lost connection has a better reason soon: that of the failed reconnect. And a reset can precede a failed
        # authentication.
        urgent = reason == REFUSED or NOT_LET_IN in reason
        is_new = self._outage.unavailable(reason, time.monotonic(), vague=self.since is not None, urgent=urgent)
        self.since, self._tried = None, True
        self._arrived.clear()
        if not self._warned:
            self._warned = True
            _log.warning("lattice NATS unreachable, retrying", url=redact_url(self._address.url), reason=reason)
        if is_new:
            self._changed()
