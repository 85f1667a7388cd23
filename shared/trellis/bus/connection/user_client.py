"""The NATS client of one user: authenticates, and fails denied requests at once.

In: credentials. Out: a connected client whose requests fail with ``PermissionDenied`` if the server denies them.
Called by ``trellis.bus.connection.connection``. Invariants: the credentials file is read at each connect, so a rotated
file is used from then on; a denial ends its request, which would otherwise wait until the timeout. Source: NATS sends
``-ERR 'Permissions Violation for Publish to "<subject>"'`` without a reference to the message; nats-py converts it to
lower case.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, Srv
from nats.aio.msg import Msg

from trellis.bus.connection import cancellation
from trellis.bus.connection.client import RobustNatsClient
from trellis.bus.connection.transport import NoDelayTransport
from trellis.bus.timings import ClientTimings
from trellis.config.authorities import trust
from trellis.config.nats_credentials import Credentials, CredentialsError, IdentitySource, Kind

_VIOLATION: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
_READING: Final = re.compile(r"\$JS\.([^.]+\.)?API\.(STREAM\.INFO|STREAM\.MSG\.GET|CONSUMER\.INFO|DIRECT\.GET)\.")
_BY_TLS: Final = "tls"
WITHOUT_TLS: Final = "the server has no TLS, which its URL (tls://) or the configured certificates require"
_BY_WEBSOCKET: Final = ("ws", "wss")
_ADVICE: Final = "grant the permission, or configure the credentials of another user"


class PermissionDenied(nats.errors.Error):
    """The NATS user lacks a permission: change the configuration of the server or the credentials of the service."""

    def __init__(self, deed: str, subject: str) -> None:
        super().__init__(f'NATS permission denied: {deed} "{subject}": {_ADVICE}')


class UserClient(RobustNatsClient):
    """The library's client with credentials; without them, the user in the URL connects, or no user.

    ``trust`` creates the SSL context that verifies the server, per connection; it makes TLS mandatory.
    """

    def __init__(
        self,
        credentials: IdentitySource | None,
        trust: Callable[[], ssl.SSLContext] | None = None,
        timings: ClientTimings = ClientTimings(),
    ) -> None:
        super().__init__()
        self._timings = timings
        self._credentials = credentials
        self._trust = trust
        self._asking: dict[str, set[asyncio.Timeout]] = {}
        self._denied: dict[str, PermissionDenied] = {}
        """The subscriptions that the server denied or revoked, by subject in lower case."""
        self._left = False

    @classmethod
    def of(cls, credentials: Credentials | None, timings: ClientTimings = ClientTimings()) -> UserClient:
        """Return the client for the credentials in the settings of a service or a user."""
        if credentials is None:
            return cls(None, timings=timings)
        return cls(
            None if credentials.kind is Kind.ADDRESS else credentials,
            None if credentials.ca_file is None else partial(trust, credentials.ca_file),
            timings,
        )

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The SSL context of the library, re-created for each connection."""
        if self._trust is None:
            return super().ssl_context
        try:
            return self._trust()
        except CredentialsError as error:
            self.hang_up()
            raise nats.errors.Error(f"TRELLIS_NATS_CA_FILE: {error}") from None

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 (the library's signature)
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Send a request and return the reply; read-only JetStream requests are retried every ``ask_again`` seconds.

        Raises:
            PermissionDenied: the user may not publish the request, or not receive the reply.
        """
        if not _READING.match(subject):
            return await self._ask(subject, payload, timeout, old_style, headers)
        # The stream leader may fail before it answers; the next one is elected in two to four seconds and does not
        # have the request. The first reply counts, so a slow server is still waited for.
        ends = time.monotonic() + timeout
        requests: set[asyncio.Task[Msg]] = set()
        try:
            while (left := ends - time.monotonic()) > 0 or not requests:
                requests.add(asyncio.create_task(self._ask(subject, payload, left, old_style, headers)))
                done, _ = await asyncio.wait(
                    requests, timeout=self._timings.ask_again, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    return done.pop().result()
            return await requests.pop()
        finally:
            for task in requests:
                task.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    async def _ask(
        self, subject: str, payload: bytes, seconds: float, old_style: bool, headers: dict[str, Any] | None
    ) -> Msg:
        refused = asyncio.timeout(None)
        asking = self._asking.setdefault(subject.lower(), set())
        asking.add(refused)
        try:
            async with refused:
                self._raise_if_denied()
                return await super().request(subject, payload, seconds, old_style, headers)
        except TimeoutError:
            self._raise_if_denied()
            if refused.expired():
                raise PermissionDenied("publish to", subject) from None
            raise
        finally:
            asking.discard(refused)
            if not asking:
                self._asking.pop(subject.lower(), None)

    @property
    def denied(self) -> str:
        """Reason why a subscription is denied, stable until it changes; "" if none is denied."""
        return str(self._denied[min(self._denied)]) if self._denied else ""

    def denied_of(self, subject: str) -> str:
        """Return the reason why a subscription is denied, "" if it is not."""
        return str(self._denied.get(subject.lower(), ""))

    async def subscribe_again(self, seconds: int) -> None:
        """Retry the denied subscriptions; the server does not restore them when the permission is granted.

        Raises:
            nats.errors.Error, TimeoutError: the server did not answer within ``seconds``.
        """
        former, self._denied = self._denied, {}
        try:
            for subscription in list(self._subs.values()):
                if subscription.subject.lower() in former:
                    await self._send_subscribe(subscription)
            await self.flush(seconds)
        except BaseException:
            self._denied = former | self._denied
            raise

    def hang_up(self) -> None:
        """Release the socket at once, in any state of the connection; unsent data is lost."""
        transport = self._transport
        if isinstance(transport, NoDelayTransport):
            transport.abort()
        elif transport is not None:
            transport.close()  # type: ignore[no-untyped-call] # the library lacks the annotation

    async def close_permanently(self, seconds: float) -> None:
        """Close the connection permanently, with a timeout in seconds; suppresses the errors of the library."""
        self._left = True
        # The library asserts that it has a connection to close, which is not the case for an invalid address.
        try:
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError, AssertionError):
                async with asyncio.timeout(seconds):
                    await self.close()
        finally:  # also of a task that is cancelled in the meantime
            self.hang_up()

    async def _connect_to_server(self, s: Srv) -> None:
        if s.uri.scheme in _BY_WEBSOCKET:
            await super()._connect_to_server(s)
            return
        self.hang_up()  # the library would leave the failed connection open
        cancellation.check()
        self._check_left()
        s.last_attempt = time.monotonic()
        transport = NoDelayTransport(self._timings.goodbye)
        await transport.connect(s.uri, DEFAULT_BUFFER_SIZE, self.options["connect_timeout"])
        try:
            self._check_left()
        except asyncio.CancelledError:
            transport.abort()  # nothing else would
            raise
        self.hang_up()  # another attempt may have come first
        self._transport = transport

    def _check_left(self) -> None:
        if self._left:
            raise asyncio.CancelledError

    def _raise_if_denied(self) -> None:
        inbox = self._inbox_prefix.decode().lower()
        for subject, denied in self._denied.items():
            if subject.startswith(inbox):
                raise denied

    async def _process_err(self, err_msg: str) -> None:
        violation = _VIOLATION.search(err_msg)
        if violation is not None and self._refuse(*violation.groups()):
            return
        await super()._process_err(err_msg)

    def _refuse(self, kind: str, subject: str) -> bool:
        """End the requests that a denial concerns; return True if there is at least one."""
        if kind == "publish":
            refused = set(self._asking.get(subject, ()))
        else:
            own = (item.subject for item in self._subs.values() if item.subject.lower() == subject)
            self._denied[subject] = PermissionDenied("subscribe to", next(own, subject))
            if not subject.startswith(self._inbox_prefix.decode().lower()):
                return False
            # No reply will arrive: the permissions are those of another service or cluster, or were revoked.
            refused = set().union(*self._asking.values())
        now = asyncio.get_running_loop().time()
        for limit in refused:
            if not limit.expired():  # a denied inbox and a denied request are two denials of one request
                limit.reschedule(now)
        return bool(refused)

    @property
    def _requires_tls(self) -> bool:
        """True if the URL requires TLS."""
        return self._current_server is not None and self._current_server.uri.scheme == _BY_TLS

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except ConnectionResetError as error:
            # The server sends the reason of a refusal and closes the connection; data that the client sent in the
            # meantime makes the kernel drop it. A server that fails at this moment looks the same until the next try.
            if self._server_info.get("auth_required"):
                raise nats.errors.AuthorizationError from error
            raise

    def _connect_command(self) -> bytes:
        self._denied.clear()
        if self._trust is not None and not self._server_info.get("tls_required"):
            self.hang_up()
            raise nats.errors.Error("TRELLIS_NATS_CA_FILE is set, but the server has no TLS")
        if self._requires_tls and not self._server_info.get("tls_required"):
            # The library would send the credentials, and then all messages, without encryption.
            self.hang_up()
            raise nats.errors.Error(WITHOUT_TLS)
        if self._credentials is not None:
            try:
                identity = self._credentials.read()
            except CredentialsError as error:
                self.hang_up()
                # The library retries after this type of error.
                raise nats.errors.Error(f"{self._credentials.where}: {error}") from None
            self._public_nkey, self._signature_cb = identity.public_key, identity.sign
            self._user_jwt_cb = None if identity.jwt is None else identity.jwt.encode
        return super()._connect_command()
