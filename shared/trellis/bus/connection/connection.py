"""The connection to NATS with its state: connected, lost, restored.

In: the address. Out: the broker of FastStream with a connected client, and a notification of each change. Called by
``trellis.bus.bus``. Invariants: reconnects never stop, with full jitter, at most 0.5 to 10 s apart; an outage logs one
warning, not one per attempt.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import nats.errors
from faststream.nats import NatsBroker
from nats.aio.client import Client, Server
from nats.js.errors import APIError, ServiceUnavailableError

from trellis.bus.accounts.naming import inbox_prefix
from trellis.bus.connection.user_client import UserClient
from trellis.bus.publish.availability import Availability
from trellis.bus.timings import ClientTimings, ConnectionTimings
from trellis.config.nats_credentials import Credentials
from trellis.kube.network_errors import network_reason
from trellis.limits.backoff import Backoff
from trellis.telemetry import get_logger

_UNANSWERED_PINGS: Final = 2
_REFUSAL: Final = "permissions violation"
_NOT_FOR_ACCOUNT: Final = 10039

REFUSED: Final = "NATS rejected the user: check its nkey, credentials, password or token"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of NATS, one server or several separated by commas, and the user that connects."""

    url: str
    service: str
    cluster: str
    credentials: Credentials | None = None

    @property
    def servers(self) -> list[str]:
        """The servers; the client connects to one of them."""
        return [part.strip() for part in self.url.split(",")]

    @property
    def client_name(self) -> str:
        """Name of the connection in NATS' monitoring."""
        return f"trellis-{self.service.replace('_', '-')}"

    @property
    def inbox_prefix(self) -> str:
        """Prefix of every inbox, so that a NATS user can be limited to its own replies."""
        return inbox_prefix(self.service, self.cluster)


class _Broker(NatsBroker):
    """FastStream's broker with the client and error callback of Trellis.

    FastStream's callback raises on errors such as "authorization violation" or "stale connection", which permanently
    ends reconnecting in nats-py: the service would stay disconnected after a server restarts with reloaded users.
    """

    on_error: Callable[[Exception], Awaitable[None]]
    credentials: Credentials | None
    timings: ClientTimings

    async def _connect(self) -> Client:
        client = UserClient.of(self.credentials, self.timings)
        try:
            await client.connect(**{**self._connection_kwargs, "error_cb": self.on_error})
        except BaseException:
            client.hang_up()
            raise
        self.config.connect(client)
        return client


class Connection:
    """One client at a time; ``changed`` is called in the event loop after each disconnect and reconnect."""

    def __init__(
        self,
        address: Address,
        availability: Availability,
        changed: Callable[[], None],
        timings: ConnectionTimings = ConnectionTimings(),
    ) -> None:
        self._address = address
        self._availability = availability
        self._changed = changed
        self._timings = timings
        self._attempts = Backoff(first=timings.attempt_first, cap=timings.attempt_most)
        self._broker: NatsBroker | None = None
        self._failures = 0
        self._last_sign = time.monotonic()
        self._opening = False
        self._abandoned = False
        self._reported: dict[type[Exception], float] = {}

    @property
    def broker(self) -> NatsBroker | None:
        """The broker, or None while it is not connected."""
        return self._broker if self._broker is not None and self._broker.connection.is_connected else None

    @property
    def dead(self) -> bool:
        """True if no client will reconnect by itself: there is none, it is closed, or its attempts have stopped."""
        if self._broker is None or self._broker.connection.is_closed:
            return True
        silence = time.monotonic() - self._last_sign
        return not self._broker.connection.is_connected and silence > self._timings.silence

    async def open(self) -> None:
        """Connect without a timeout; a previous client is closed."""
        await self.close()
        self._opening = True
        try:
            broker = self._new_broker()
            # Returns only when connected: the client retries, and _failed makes it wait in between.
            await broker.connect()
        finally:
            self._opening = False
        self._broker, self._failures = broker, 0

    def abandon(self) -> None:
        """Stop reconnecting: the NATS client may lose a cancellation of ``open``, see ``ConnectionSupervisor.end``."""
        self._abandoned = True

    async def close(self) -> None:
        """Close the client; pending messages are flushed if the server responds within two seconds."""
        broker, self._broker = self._broker, None
        if broker is not None and isinstance(broker.connection, UserClient):
            await broker.connection.close_permanently(self._timings.stop)

    def _new_broker(self) -> NatsBroker:
        broker = _Broker(
            self._address.servers,
            name=self._address.client_name,
            inbox_prefix=self._address.inbox_prefix,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0,
            reconnect_to_server_handler=self._next_server,
            connect_timeout=self._timings.connect,
            ping_interval=self._timings.ping,
            max_outstanding_pings=_UNANSWERED_PINGS,
            disconnected_cb=self._lost,
            reconnected_cb=self._back,
            graceful_timeout=self._timings.stop,
            apply_types=False,
            logger=None,
        )
        broker.on_error = self._failed
        broker.credentials = self._address.credentials
        broker.timings = self._timings.client
        return broker

    async def _failed(self, error: Exception) -> None:
        """Handle the failure of a connection attempt or an error of the connection."""
        self._last_sign = time.monotonic()
        if isinstance(error, nats.errors.StaleConnectionError):
            return  # the connection is lost, and _lost reports it
        if self.broker is not None:
            if not isinstance(error, ConnectionError):  # a write detected the lost connection before _lost is called
                self._report(error)
            return
        self._availability.lost(describe(error))
        self._failures += 1
        if self._opening and self._abandoned:
            raise asyncio.CancelledError
        if self._opening:
            await asyncio.sleep(self._attempts.delay(self._failures))

    def _report(self, error: Exception) -> None:
        """Report an error of the connection, once a minute per type: an error may occur per message."""
        if _REFUSAL in str(error).lower():
            self._availability.refused(describe(error))
            return
        now, kind, pause = time.monotonic(), type(error), self._timings.report
        if now - self._reported.get(kind, -pause) >= pause:
            self._reported[kind] = now
            _log.warning("NATS error", error=describe(error))

    async def _lost(self) -> None:
        self._last_sign = time.monotonic()
        if self._broker is not None:
            self._availability.lost("connection lost")
            self._changed()

    async def _back(self) -> None:
        self._failures = 0
        self._changed()

    def _next_server(self, servers: list[Server], _: dict[str, object]) -> tuple[Server | None, float]:
        """Return the server to reconnect to, and the delay in seconds."""
        return servers[self._failures % len(servers)], self._attempts.delay(self._failures + 1)


def client_of(broker: NatsBroker) -> Client:
    """Return the broker's NATS client."""
    return broker.connection


def describe(error: BaseException) -> str:
    """Return an error of the NATS client as a message for users."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"TLS: {error.reason} ({error.verify_message})"
        case ssl.SSLError():
            return f"TLS: {error.reason or error}"
        case nats.errors.SlowConsumerError():
            return "slow consumer: NATS dropped messages and redelivers them"
        case APIError() if error.err_code == _NOT_FOR_ACCOUNT:
            return "JetStream is disabled for the account: enable jetstream for it in the NATS configuration"
        case APIError() if error.description:
            return f"{error.description} (JetStream error {error.err_code})"
        case ServiceUnavailableError():  # no responders: the error has no description
            return "JetStream is disabled on the NATS server, or no server with JetStream is reachable"
        case OSError():
            return network_reason(error)
        case _:
            text = str(error).removeprefix("nats: ").strip("'")
            return REFUSED if "uthorization" in text else text or type(error).__name__
