"""Detects lattice connections to the same NATS account: those that receive each other's messages.

In: connections. Out: groups of connections to one account. Called by ``serving``, for each connection. Invariants: only
a token published on one connection and received on the other joins both, so a client outside the account of a
connection gets nothing of its grant; a token is published to all at once and only its receiver answers, so foreign
servers do not delay it.

The server is not queried for the account: a host group may name its own server, which can answer anything, and on a
shared server any subscriber of ``$SYS.REQ.USER.INFO`` receives the request too (nats-server 2.15).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from secrets_backend.gather import Cache
from secrets_backend.timings import AccountTimings
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import INBOX, LatticeConnection, NatsUnavailableError

_BYTES: Final = 16
_TIMES: Final = 2
"""Attempts: a token may be lost with a connection; a connection without two answers counts as another account."""


@dataclass(eq=False, slots=True)
class _Listener:
    """The listener of a connection. ``subject`` and ``token`` are secret outside of accounts that get them."""

    address: NatsAddress
    connection: LatticeConnection
    subject: str = field(default_factory=lambda: f"{INBOX}.{secrets.token_hex(_BYTES)}.account")
    token: bytes = b""
    since: float | None = None
    """Start of the connection for which ``token`` was generated."""
    received: dict[_Listener, tuple[float, float]] = field(default_factory=dict)
    """Connections whose token was received here, with the start of this connection and of the other one."""
    published_at: float = 0.0
    """Time at which the token was published to all."""
    answering: set[_Listener] = field(default_factory=set)
    """Connections that are already answering the token published to all."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def has_received(self, other: _Listener) -> bool:
        """Return whether the other's token was received here, over the current connections."""
        now = self.connection.since, other.connection.since
        return None not in now and self.received.get(other) == now

    def shares_account_with(self, other: _Listener) -> bool:
        """Return whether both have received the token of the other."""
        return self.has_received(other) and other.has_received(self)


class Accounts:
    """Reports to ``cache`` which connections lead into one account."""

    def __init__(self, cache: Cache, timings: AccountTimings = AccountTimings()) -> None:  # noqa: B008 - frozen
        self._cache = cache
        self._timings: Final = timings
        self._listeners: dict[NatsAddress, _Listener] = {}
        self._tokens: dict[bytes, _Listener] = {}
        self._all = f"{INBOX}.{secrets.token_hex(_BYTES)}.accounts"
        self._answers: set[asyncio.Task[None]] = set()

    async def join(self, address: NatsAddress, connection: LatticeConnection) -> None:
        """Subscribe a connection; call this before it connects."""
        if address in self._listeners:
            self._forget(self._listeners[address])
        listener = self._listeners[address] = _Listener(address, connection)
        for subject in (self._all, listener.subject):
            await connection.listen(subject, partial(self._on_token, listener))

    def leave(self, address: NatsAddress, connection: LatticeConnection) -> None:
        """Drop a connection, unless a newer one has this address."""
        if address in self._listeners and self._listeners[address].connection is connection:
            self._forget(self._listeners.pop(address))

    async def look(self, address: NatsAddress, connection: LatticeConnection) -> None:
        """Determine which connections lead into the account of this one, at present.

        Results of a former connection do not count: the server may be another one, which must not receive what only the
        host groups of the former account are granted. If an unreachable connection was of this account, this waits for
        it a little, so that both may reconnect in any order; it calls this itself after its reconnect.
        """
        own = self._listeners[address]
        if own.connection is not connection:
            return  # this connection ends
        await self._wait_for_former(address)
        until = time.monotonic() + self._timings.look
        for _ in range(_TIMES):
            if await self._publish_token_to_all(own, until):
                break
        for other in self._cache.of_its_account(address):
            if other not in self._listeners or not own.shares_account_with(self._listeners[other]):
                self._cache.record_account(address, other, yes=False)
        self._cache.looked_for(address)

    async def _wait_for_former(self, address: NatsAddress) -> None:
        former = self._cache.of_its_account(address)
        unavailable = [self._listeners[item].connection.there() for item in former & self._listeners.keys()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.former):
                await asyncio.gather(*unavailable)

    async def _publish_token_to_all(self, mine: _Listener, until: float) -> bool:
        """Publish the token, and return True once all connections are of one account; False after the last answer."""
        mine.answering.clear()
        try:
            if self._all_share_account(mine):
                return True
            await self._publish_token(mine, self._all)
            mine.published_at = time.monotonic()
            while not self._all_share_account(mine):
                mine.changed.clear()
                async with asyncio.timeout(min(self._timings.silence, until - time.monotonic())):
                    await mine.changed.wait()
        except (TimeoutError, NatsUnavailableError):
            return False
        return True

    def _all_share_account(self, mine: _Listener) -> bool:
        """Return whether all connections that are up are of this account."""
        return all(
            listener is mine or listener.connection.since is None or mine.shares_account_with(listener)
            for listener in self._listeners.values()
        )

    async def _publish_token(self, mine: _Listener, subject: str) -> None:
        """Publish the token of the current connection."""
        if mine.since != mine.connection.since:
            self._tokens.pop(mine.token, None)
            mine.token, mine.since = secrets.token_bytes(_BYTES), mine.connection.since
            self._tokens[mine.token] = mine
        await mine.connection.publish(subject, mine.token)

    def _on_token(self, mine: _Listener, subject: str, token: bytes) -> None:
        """Record the sender of a token; answer a token published to all, unless this side published its own since."""
        other = self._tokens.get(token)
        if other is None or other is mine or mine.connection.since is None or other.since is None:
            return
        mine.received[other] = mine.connection.since, other.since
        if mine.shares_account_with(other):
            self._cache.record_account(mine.address, other.address, yes=True)
            mine.changed.set()
            other.changed.set()
        elif subject == self._all and mine.published_at < other.since and mine not in other.answering:
            other.answering.add(mine)
            task = asyncio.create_task(self._answer(mine, other), name="answer in an account")
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, mine: _Listener, other: _Listener) -> None:
        with contextlib.suppress(TimeoutError, NatsUnavailableError):
            async with asyncio.timeout(self._timings.silence):
                await self._publish_token(mine, other.subject)

    def _forget(self, listener: _Listener) -> None:
        self._tokens.pop(listener.token, None)
        for other in self._listeners.values():
            other.received.pop(listener, None)
