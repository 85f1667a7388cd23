"""Connections to the API server shared by tenants, with a limit per tenant.

In: requests with the account that they are made as. Out: their answers. Called by ``trellis.kube.calls`` through
``Kube.apart``. Invariant: the accounts of one namespace have at most their share of requests in progress; a request
that waits too long fails before anything of it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from trellis.kube.transport import ConnectionFailed, HttpRequest, Reply, Stream, Transport
from trellis.runtime.fair_share import FairShare

IMPERSONATE: Final = "Impersonate-User"
IMPERSONATE_GROUP: Final = "Impersonate-Group"
"""One header per group: the server treats commas as part of the name."""
_ACCOUNT: Final = "system:serviceaccount:"


class SharedTransport:
    """A transport whose requests wait for the share of their user."""

    def __init__(self, inner: Transport, shares: FairShare, wait: float) -> None:
        """Limit ``inner`` by ``shares``; ``wait``: maximum wait of a request for its share, in seconds."""
        self._inner = inner
        self._shares = shares
        self._wait = wait

    @property
    def server(self) -> str:
        """Address, for messages."""
        return self._inner.server

    async def send(self, request: HttpRequest) -> Reply:
        """Return the whole answer; raises ConnectionFailed, AnswerTooLong."""
        owner = await self._turn(request)
        try:
            return await self._inner.send(request)
        finally:
            self._shares.give_back(owner)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, *, idle_seconds: float) -> AsyncIterator[Stream]:
        """Open a stream, which occupies a place until it ends; raises ConnectionFailed."""
        owner = await self._turn(request)
        try:
            async with self._inner.stream(request, idle_seconds=idle_seconds) as stream:
                yield stream
        finally:
            self._shares.give_back(owner)

    async def renew_credentials(self) -> None:
        """Re-read the credentials; raises ConnectionFailed."""
        await self._inner.renew_credentials()

    def apart(self, connections: int) -> Transport:
        """Return a transport with separate connections and without shares."""
        return self._inner.apart(connections)

    async def close(self) -> None:
        """Close all connections."""
        await self._inner.close()

    async def _turn(self, request: HttpRequest) -> str:
        """Reserve a place for a request; return its owner, for which the place has to be released."""
        owner = owner_of(request.headers.get(IMPERSONATE, ""))
        if self._shares.take_free(owner):  # the common case, without a timer
            return owner
        try:
            async with asyncio.timeout(self._wait):
                await self._shares.take(owner)
                return owner
        except TimeoutError:
            message = (
                f"{owner or 'this service'} has {self._shares.held(owner)} requests to {self.server} in progress, the "
                f"limit is {self._shares.each}: none of them ended within {self._wait:g} s"
            )
            raise ConnectionFailed(message) from None


def owner_of(user: str) -> str:
    """Return the owner of a user's requests: the namespace of a ServiceAccount, or the user."""
    return f"namespace {user.removeprefix(_ACCOUNT).partition(':')[0]}" if user.startswith(_ACCOUNT) else user
