"""Fetches over https what tenants name: bounded in bytes, time, redirects, and in whom it connects to.

In: an address. Out: status, headers, body. Called by ``transfers``, which bounds the time of all requests of a fetch.
Invariants: every connection is to an address that ``addresses`` allows, also if a name leads elsewhere a moment later;
credentials go to the host that they were meant for alone; nothing of a body or of credentials is in a message; a server
of names that does not answer holds up nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from controller_host.domain.addresses import Network, forbidden, is_address
from controller_host.domain.source_errors import MOST_BYTES, SourceError, SourceReason, too_large
from controller_host.timings import SourceTimings
from trellis.telemetry.metrics import trellis_version

_REDIRECTS: Final = 5
_ABORTED: Final = sys.version_info < (3, 12, 7) or (3, 13, 0) <= sys.version_info < (3, 13, 1)
"""These leave a connection open for half a minute whose server does not end TLS in its turn (CPython 118950)."""
_RESOLVING: Final = 32
"""Threads for names: one that nobody answers keeps its thread for longer than the fetch that asked for it."""
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_AUTHORIZATION: Final = "Authorization"
_SETTING: Final = "TRELLIS_CONTROLLER_SOURCE_NETWORKS"


Arrived: TypeAlias = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Request:
    """One request, of which redirects make another; ``most``: bytes of the answer."""

    method: str
    place: URL
    headers: Mapping[str, str] = field(repr=False)
    most: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said, whatever its status; names of headers are as they came, and found in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _NotAllowedError(OSError):
    """A name leads to an address that must not be connected to."""


class _Resolver(AbstractResolver):
    """Resolves names, and refuses what they lead to; what is connected to is what was looked at."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed
        self._threads = ThreadPoolExecutor(_RESOLVING, thread_name_prefix="resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raises if one of them is not allowed."""
        # The loop's own threads are those of everything else here that waits for a disk.
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _addresses, host, port, family)
        for one in found:
            if why := forbidden(one["host"], self._allowed):
                raise _NotAllowedError(f"{host} leads to {why}")
        return found

    async def close(self) -> None:
        """Begin no more look-ups; those in progress end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    """Return the addresses of a name, as a resolver of the library does."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=str(place[0]), port=int(place[1]), family=kind, proto=protocol, flags=flags)
        for kind, _, protocol, _, place in socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    ]


class Web:
    """A client. ``allowed``: networks that are reached besides the internet; ``tls``: whom it trusts."""

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        tls: ssl.SSLContext | None = None,
        timings: SourceTimings = SourceTimings(),  # noqa: B008 - frozen
    ) -> None:
        self._timeout: Final = aiohttp.ClientTimeout(total=None, sock_connect=timings.connect)
        self._allowed = tuple(allowed)
        self._tls = tls or ssl.create_default_context()
        self._session: aiohttp.ClientSession | None = None

    async def get(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        most: int = MOST_BYTES,
        method: str = "GET",
        arrived: Arrived | None = None,
    ) -> Answer:
        """Return what is at an address, redirects followed; at most ``most`` bytes.

        ``arrived`` is told of each part of the body, and may take its time before the next is read.

        Raises:
            SourceError: it is not https, leads where it must not, is too large, or nobody answers.
        """
        place, sent = self._checked(url), dict(headers or {})
        for _ in range(_REDIRECTS + 1):
            answer, target = await self._once(_Request(method, place, sent, most), arrived or _nothing)
            if target is None:
                return answer
            self._check(target)
            if target.origin() != place.origin():
                sent.pop(_AUTHORIZATION, None)
            place = target
        message = f"{_shown(URL(url))} redirects more than {_REDIRECTS} times"
        raise SourceError(SourceReason.UNAVAILABLE, message)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _checked(self, url: str) -> URL:
        try:
            place = URL(url)
        except ValueError:
            raise SourceError(SourceReason.NOT_ALLOWED, f"{url.partition('?')[0]} is not an address") from None
        self._check(place)
        return place

    def _check(self, place: URL) -> None:
        if place.scheme != "https" or not place.host:
            message = f"{_shown(place)} is not https: anyone on the way could read and change what comes from there"
            raise SourceError(SourceReason.NOT_ALLOWED, message)
        # Who gives an address is not asked by way of the resolver.
        if is_address(place.host) and (why := forbidden(place.host, self._allowed)):
            raise _not_allowed(place, why)

    async def _once(self, request: _Request, arrived: Arrived) -> tuple[Answer, URL | None]:
        place, asked = request.place, (request.method, request.place)
        try:
            async with self._opened().request(*asked, headers=request.headers, allow_redirects=False) as response:
                location = response.headers.get("Location", "")
                if response.status in _MOVED and location:
                    return Answer(response.status, response.headers, b""), place.join(URL(location))
                body = b"" if request.method == "HEAD" else await _read(response, request, arrived)
                return Answer(response.status, response.headers, body), None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(refused := _cause(error), _NotAllowedError):
                raise _not_allowed(place, str(refused)) from None
            raise SourceError(SourceReason.UNAVAILABLE, f"cannot fetch {_shown(place)}: {_why(error)}") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_Resolver(self._allowed),
                ssl=self._tls,
                limit=0,
                use_dns_cache=False,
                force_close=True,
                enable_cleanup_closed=_ABORTED,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                headers={"User-Agent": f"trellis-controller-host/{trellis_version()}"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse, request: _Request, arrived: Arrived) -> bytes:
    if (response.content_length or 0) > request.most:
        raise too_large(_shown(request.place))
    body = bytearray()
    async for block in response.content.iter_any():
        body += block
        if len(body) > request.most:
            raise too_large(_shown(request.place))
        await arrived(len(block))
    return bytes(body)


async def _nothing(_count: int) -> None:
    """Take word of bytes that arrived."""


def _not_allowed(place: URL, why: str) -> SourceError:
    message = f"modules may not come from {_shown(place)}: {why}; if they are to, its network has to be in {_SETTING}"
    return SourceError(SourceReason.NOT_ALLOWED, message)


def _cause(error: BaseException | None) -> BaseException | None:
    """Return the refusal that an error of the library goes back to, else the error."""
    one = error
    while one is not None:
        if isinstance(one, _NotAllowedError):
            return one
        one = getattr(one, "os_error", None) or one.__cause__ or one.__context__
    return error


def _shown(place: URL) -> str:
    """Return an address without what may be secret in it: the query of an address that was signed."""
    return str(place.with_query(None).with_fragment(None).with_user(None)) if place.host else str(place)


def _why(error: Any) -> str:  # noqa: ANN401 - whatever was raised
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({error.certificate_error})"
    return str(getattr(error, "strerror", None) or type(error).__name__)
