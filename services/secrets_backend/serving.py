"""Serves the requests of one lattice connection.

In: an address. Out: requests for ``answering``, and the state of the connection. Called by ``lattice_connections``.
Invariants: it subscribes only after a check that no other backend answers; requests in progress and waiting are
limited, and further ones are rejected or dropped and counted, so that a flood on one connection affects no other;
accepted requests are answered before the connection ends.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from secrets_backend import backend_probe
from secrets_backend.accounts import Accounts
from secrets_backend.answering import Answering
from secrets_backend.domain.refusals import ErrorName, Refusal
from secrets_backend.gather import Cache
from secrets_backend.key import Key
from secrets_backend.metrics import SecretMetrics
from secrets_backend.timings import Timings
from trellis.events.subjects import SECRETS_BACKEND
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.connection.requests import AnswerLost, IncomingRequest
from trellis.lattice.domain.errors import TooLargeError
from trellis.lattice.domain.subjects import secrets_queue, secrets_subject
from trellis.telemetry import get_logger
from trellis.telemetry.health import Health

CONNECTION: Final = "trellis-secrets-backend"
GET: Final = "get"
SERVER_XKEY: Final = "server_xkey"
AT_ONCE: Final = 32
"""Maximum number of requests in progress on one connection."""
MOST_WAITING: Final = 256
"""Maximum number of waiting requests on one connection."""
MOST_WAITING_BYTES: Final = 8 * 2**20
"""Maximum size of their payloads; NATS limits each one, and that of a host has some KB."""
_ASIDE: Final = 64
"""Maximum number of small answers of one connection and kind that are being sent."""
_BUSY: Final = Refusal(ErrorName.OTHER, "secrets_backend has too many requests of this NATS account: retry").body()
_INVALID: Final = Refusal(ErrorName.INVALID_REQUEST, "no such operation").body()
_OTHER: Final = (
    "another secrets backend named {0!r} answers with a different key, so this one does not: stop the other one, or "
    "rename one of them (TRELLIS_SECRETS_BACKEND)"
)

_NUMBERS = itertools.count(1)
_log = get_logger(__name__)


class State(StrEnum):
    """State of a connection."""

    UNREACHABLE = "unreachable"
    CHECKING = "checking"
    SERVING = "serving"
    SUBSCRIPTION_DENIED = "subscription_denied"
    """NATS denies the subscription to this user."""
    OTHER = "other_backend"


@dataclass(frozen=True, slots=True)
class Environment:
    """Components that all connections share."""

    cache: Cache
    accounts: Accounts
    key: Key
    answering: Answering
    metrics: SecretMetrics
    health: Health
    backend: str
    timings: Timings


class Serving:
    """Serves one connection while it runs."""

    def __init__(self, address: NatsAddress, environment: Environment) -> None:
        self._address = address
        self._environment = environment
        self._subject = secrets_subject(environment.backend, ">")
        self._changed = asyncio.Event()
        self._connection = LatticeConnection(address, CONNECTION, self._changed.set)
        self._serving = self._other = False
        self._ending = False
        self._checked_on: float | None = None
        self._waiting: deque[IncomingRequest] = deque()
        self._waiting_bytes = 0
        self._working: set[asyncio.Task[None]] = set()
        self._keys: set[asyncio.Task[None]] = set()
        self._aside: set[asyncio.Task[None]] = set()
        # Several connections may have one address, with different users.
        self._note = f"secrets over {redact_url(address.url)} ({next(_NUMBERS)})"

    @property
    def state(self) -> State:
        """The state of the connection."""
        if self._connection.since is None:
            return State.UNREACHABLE
        if self._other:
            return State.OTHER
        if not self._serving:
            return State.CHECKING
        return State.SUBSCRIPTION_DENIED if self._connection.subscription_denied else State.SERVING

    @property
    def in_progress(self) -> int:
        """Number of requests in progress or waiting."""
        return len(self._working) + len(self._waiting)

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._environment.accounts.join(self._address, self._connection)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._connection.run(), name="link")
                tasks.create_task(self._look_after(), name="serving")
        finally:
            for task in (*self._working, *self._keys, *self._aside):
                task.cancel()
            self._environment.accounts.leave(self._address, self._connection)
            self._environment.health.note(self._note, "")

    async def end(self, seconds: float) -> None:
        """Accept no more requests, and answer the accepted ones, within ``seconds``."""
        self._ending = True
        until = time.monotonic() + seconds
        await self._close(min(self._environment.timings.close, seconds))
        while (left := until - time.monotonic()) > 0 and (tasks := {*self._working, *self._keys, *self._aside}):
            await asyncio.wait(tasks, timeout=left)
        if self.in_progress:
            _log.warning("requests unanswered at the shutdown", url=self._url, requests=self.in_progress)

    @property
    def _url(self) -> str:
        return redact_url(self._address.url)

    async def _look_after(self) -> None:
        await self._environment.key.there.wait()
        while True:
            self._changed.clear()
            if self._connection.since is None:
                await self._close(self._environment.timings.close)
                self._checked_on = None
                if self._connection.tried:
                    self._environment.cache.looked_for(self._address)
                self._show()
                await self._changed.wait()
                continue
            await self._know_account()
            seconds = await self._check()
            self._show()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _know_account(self) -> None:
        """Determine the account of this connection, once for each reconnect."""
        since = self._connection.since
        if self._checked_on != since:
            await self._environment.accounts.look(self._address, self._connection)
            self._checked_on = since
        for _ in range(min(len(self._waiting), AT_ONCE - len(self._working))):
            self._begin(self._working, self._work())

    @property
    def _is_sure(self) -> bool:
        """True if the account of the current connection is known; a reconnect may lead to another server."""
        return self._connection.since is not None and self._checked_on == self._connection.since

    async def _check(self) -> float:
        """Serve unless another backend does; return the seconds until the next check."""
        timings, subject = self._environment.timings, secrets_subject(self._environment.backend, SERVER_XKEY)
        try:
            other = await backend_probe.other_backend(
                self._connection, subject, self._environment.key, timings.probe_answer
            )
        except NatsUnavailableError:
            return timings.probe
        if other:
            await self._stay_out()
            return timings.other
        if self._other:
            _log.info("other backend of this name stopped", url=self._url, backend=self._environment.backend)
        self._other = False
        if not self._serving:
            await self._settled()
        if not self._serving and not self._ending and self._connection.since is not None:
            self._serving = True
            await self._connection.serve(self._subject, secrets_queue(self._environment.backend), self._take)
            _log.info("serving secrets", url=self._url, backend=self._environment.backend)
        return timings.probe

    async def _settled(self) -> None:
        """Wait a while until grants are complete, as a refusal for missing data would be permanent for the request."""
        until = time.monotonic() + self._environment.timings.settle
        while not self._environment.cache.settled() and time.monotonic() < until:  # noqa: ASYNC110 - of many parts
            await asyncio.sleep(self._environment.timings.poll)

    async def _stay_out(self) -> None:
        await self._close(self._environment.timings.close)
        if not self._other:
            _log.warning(_OTHER.format(self._environment.backend), url=self._url)
        self._other = True

    async def _close(self, seconds: float) -> None:
        if self._serving:
            self._serving = False
            await self._connection.close(self._subject, seconds)

    def _show(self) -> None:
        texts = {
            State.OTHER: _OTHER.format(self._environment.backend),
            State.UNREACHABLE: self._connection.reason,
            State.SUBSCRIPTION_DENIED: self._connection.reason,
        }
        self._environment.health.note(self._note, texts.get(self.state, ""))

    def _take(self, incoming: IncomingRequest) -> None:
        """Accept a request: answer it at once, start to work on it, or reject it beyond the limit."""
        operation = incoming.subject.removeprefix(self._subject.removesuffix(">"))
        if operation == SERVER_XKEY:
            # With its own limit, independent of a flood: a host without the key starts no component.
            self._answer_aside(self._keys, incoming, None, SERVER_XKEY)
        elif operation != GET:
            self._answer_aside(self._aside, incoming, _INVALID, ErrorName.INVALID_REQUEST.value)
        elif len(self._waiting) >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES:
            self._answer_aside(self._aside, incoming, _BUSY, "busy")
        else:
            self._waiting.append(incoming)
            self._waiting_bytes += len(incoming.payload)
            if len(self._working) < AT_ONCE and self._is_sure:
                self._begin(self._working, self._work())

    async def _work(self) -> None:
        """Answer requests until none waits, or until the account of the connection is unknown."""
        while self._waiting and self._is_sure:
            incoming = self._waiting.popleft()
            self._waiting_bytes -= len(incoming.payload)
            await self._environment.answering.answer(
                incoming, lambda: self._environment.cache.connection_grant(self._address)
            )
            await asyncio.sleep(0)  # yield to other connections, as an answer may complete without a wait

    def _answer_aside(
        self, among: set[asyncio.Task[None]], incoming: IncomingRequest, body: bytes | None, outcome: str
    ) -> None:
        """Answer with a fixed body, or with the current key."""
        if len(among) >= _ASIDE:
            self._environment.metrics.dropped("flood")
            return
        self._begin(among, self._answer_small(incoming, body, outcome))

    async def _answer_small(self, incoming: IncomingRequest, body: bytes | None, outcome: str) -> None:
        try:
            async with asyncio.timeout(self._environment.timings.answer):
                if body is None:
                    body = (await self._environment.key.newest()).current.public.encode()
                await incoming.answer(body)
        except (AnswerLost, TooLargeError, TimeoutError):
            self._environment.metrics.dropped("lost")
        else:
            self._environment.metrics.answered(outcome, time.monotonic() - incoming.at)

    def _begin(self, among: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=SECRETS_BACKEND)
        among.add(task)
        task.add_done_callback(among.discard)
