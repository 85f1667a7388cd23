"""HTTPS client for addresses from users: bounded in bytes, time, redirects and reachable networks.

In: an address. Out: status, headers, body. Called by ``transfers``, which bounds the time of all requests of a fetch.
Invariants: every connection is to an IP address that ``addresses`` allows, also if the DNS record changes; plain
http is used for hosts that the user named only; credentials are sent only to their own host; messages contain neither
bodies nor credentials; a DNS server that does not answer blocks nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from trellis.registries.domain.addresses import Network, forbidden, is_address
from trellis.registries.domain.errors import (
    MOST_BYTES,
    SourceError,
    SourceReason,
    TlsProblem,
    TransportError,
    too_large,
)
from trellis.registries.timings import FetchTimings
from trellis.telemetry.metrics import trellis_version

_REDIRECTS: Final = 5
_ABORTED: Final = sys.version_info < (3, 12, 7) or (3, 13, 0) <= sys.version_info < (3, 13, 1)
"""Python versions that keep a connection open for 30 s if the server does not close TLS (CPython 118950)."""
_RESOLVING: Final = 32
"""Threads for DNS lookups: a lookup without an answer outlives the timeout of its fetch."""
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_AUTHORIZATION: Final = "Authorization"
_BAD_REQUEST: Final = 400
"""Answer of servers with TLS to plain http."""
_ISSUER_UNKNOWN: Final = frozenset({2, 7, 18, 19, 20, 21, 30})
"""Codes of OpenSSL (X509_V_ERR) for a chain without a trusted CA; 7 and 30: a trusted CA has its name only."""

Arrived: TypeAlias = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Request:
    """One request; a redirect creates another; ``most``: maximum bytes of the answer."""

    method: str
    place: URL
    headers: Mapping[str, str] = field(repr=False)
    most: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a server with any status; header names are case-insensitive.

    ``moved``: it is of another origin than the requested one, because of redirects.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """The program that uses the client, for servers and for messages.

    ``agent``: its ``User-Agent``, without a version. ``networks_setting``: its setting for reachable private networks.
    ``insecure``: hosts, as ``registry_host`` returns them, that the user permits plain http for.
    """

    agent: str = "trellis"
    networks_setting: str = ""
    insecure: frozenset[str] = frozenset()


class _NotAllowedError(OSError):
    """A name resolves to a forbidden address."""


class _Resolver(AbstractResolver):
    """Resolver that rejects forbidden addresses; the connection uses the checked address."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed
        self._threads = ThreadPoolExecutor(_RESOLVING, thread_name_prefix="resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raises if one of them is forbidden."""
        # The default threads of the event loop are used for disk access.
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _addresses, host, port, family)
        for item in found:
            if reason := forbidden(item["host"], self._allowed):
                raise _NotAllowedError(f"{host} resolves to {reason}")
        return found

    async def close(self) -> None:
        """Reject further lookups; those in progress end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    """Return the addresses of a name in the format of aiohttp."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=str(place[0]), port=int(place[1]), family=kind, proto=protocol, flags=flags)
        for kind, _, protocol, _, place in socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    ]


class Web:
    """HTTPS client. ``allowed``: private networks that it can reach; ``tls``: its trust store."""

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        tls: ssl.SSLContext | None = None,
        timings: FetchTimings = FetchTimings(),  # noqa: B008 - frozen
        client: Client = Client(),
    ) -> None:
        self._client: Final = client
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
        """Return the answer for an address after redirects; at most ``most`` bytes.

        ``arrived`` is awaited with the size of each part of the body before the next is read.

        Raises:
            SourceError: not https, forbidden address, answer too large, or no answer (``TransportError``).
        """
        place, sent = self._checked(url), dict(headers or {})
        origin = place.origin()
        for _ in range(_REDIRECTS + 1):
            answer, target = await self._once(_Request(method, place, sent, most), arrived or _nothing)
            if target is None:
                return replace(answer, moved=place.origin() != origin)
            self._check(target)
            if target.origin() != place.origin():
                sent.pop(_AUTHORIZATION, None)
            place = target
        message = f"{_shown(URL(url))} redirects more than {_REDIRECTS} times: use its final address"
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
        plain = bool(place.scheme == "http" and place.host)
        if not place.host or not (place.scheme == "https" or (plain and host_of(place) in self._client.insecure)):
            message = f"{_shown(place)} is not https: use an https address, plain connections can be modified"
            tls = TlsProblem.PLAIN_HTTP if plain else None
            raise TransportError(SourceReason.NOT_ALLOWED, message, host_of(place), tls)
        # The resolver is not called for IP addresses.
        if is_address(place.host) and (reason := forbidden(place.host, self._allowed)):
            raise self._not_allowed(place, reason)

    async def _once(self, request: _Request, arrived: Arrived) -> tuple[Answer, URL | None]:
        place, target = request.place, (request.method, request.place)
        try:
            async with self._opened().request(*target, headers=request.headers, allow_redirects=False) as response:
                location = response.headers.get("Location", "")
                if response.status in _MOVED and location:
                    return Answer(response.status, response.headers, b""), place.join(URL(location))
                body = b"" if request.method == "HEAD" else await _read(response, request, arrived)
                return Answer(response.status, response.headers, body), None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(refused := _cause(error), _NotAllowedError):
                raise self._not_allowed(place, str(refused)) from None
            tls = await self._tls_problem(place, error)
            text = "it speaks plain http, and https was tried" if tls is TlsProblem.PLAIN_HTTP else _error_text(error)
            message = f"cannot fetch {_shown(place)}: {text}"
            raise TransportError(SourceReason.UNAVAILABLE, message, host_of(place), tls) from None

    async def _tls_problem(self, place: URL, error: Exception) -> TlsProblem | None:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            code = getattr(error.certificate_error, "verify_code", None)
            return TlsProblem.ISSUER_UNKNOWN if code in _ISSUER_UNKNOWN else TlsProblem.CERTIFICATE_INVALID
        # A server without TLS answers the first bytes of TLS with an error or ends the connection.
        failed = place.scheme == "https" and isinstance(error, aiohttp.ClientConnectorError)
        if failed and isinstance(getattr(error, "os_error", None), ssl.SSLError | ConnectionResetError):
            return TlsProblem.PLAIN_HTTP if await self._speaks_http(place) else None
        return None

    async def _speaks_http(self, place: URL) -> bool:
        """Return whether a server answers plain http. The request has neither path, query nor credentials."""
        probe = URL.build(scheme="http", host=place.host or "", port=place.port)
        try:
            async with self._opened().request("HEAD", probe, allow_redirects=False) as response:
                return response.status != _BAD_REQUEST
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return False

    def _not_allowed(self, place: URL, reason: str) -> SourceError:
        setting = self._client.networks_setting
        remedy = f"; to allow it, add its network to {setting}" if setting else ""
        return SourceError(SourceReason.NOT_ALLOWED, f"cannot fetch {_shown(place)}: {reason}{remedy}")

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
                headers={"User-Agent": f"{self._client.agent}/{trellis_version()}"},
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
    """Ignore the number of received bytes."""


def _cause(error: BaseException | None) -> BaseException | None:
    """Return the _NotAllowedError in the causes of an error, otherwise the error."""
    item = error
    while item is not None:
        if isinstance(item, _NotAllowedError):
            return item
        item = getattr(item, "os_error", None) or item.__cause__ or item.__context__
    return error


def host_of(address: URL | str) -> str:
    """Return the host of an address as ``registry_host`` does, also IPv6; "" if it has none."""
    try:
        place = URL(address)
        host, port = (place.host or "").lower(), place.port
    except ValueError:
        return ""
    name = f"[{host}]" if ":" in host else host
    return name if port in {None, 80, 443} else f"{name}:{port}"


def _shown(place: URL) -> str:
    """Return an address without parts that can be secret, such as the query of a signed address."""
    return str(place.with_query(None).with_fragment(None).with_user(None)) if place.host else str(place)


def _error_text(error: Any) -> str:  # noqa: ANN401 - any exception
    if isinstance(error, asyncio.TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({error.certificate_error})"
    return str(getattr(error, "strerror", None) or type(error).__name__)
