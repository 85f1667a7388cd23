"""Authentication of requests, login and logout: cookies, tokens, the proxy.

In: requests. Out: viewers, cookies. Called by routes. Invariants: a token is accepted only in the body of a login; a
cookie is sent only to this host, is not readable by scripts, and is not sent from pages of other sites; only pages of
the console can change a session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from console.access.identity import Proxy, Viewer, by_proxy, by_token, token_of
from console.access.sessions import Session, Sessions
from console.domain.limits import LOGINS_BURST, LOGINS_PER_SECOND
from console.http.refusals import RefusedError, bad, busy, log_in, of_kube
from console.live.viewer_registry import review_identity
from console.timings import Timings
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.limits.token_bucket import TokenBucket

_COOKIE: Final = "trellis-console"
_HOST_COOKIE: Final = f"__Host-{_COOKIE}"
"""Browsers accept this prefix only from the host itself, with TLS."""
_JSON: Final = "application/json"


class Authentication:
    """``proxy``: None if viewers log in with a token. ``anonymous``: a client without an identity."""

    def __init__(
        self,
        sessions: Sessions,
        anonymous: Callable[[], Kube],
        proxy: Proxy | None,
        url: str | None,
        *,
        secure: bool,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> None:
        self.sessions: Final = sessions
        self._anonymous = anonymous
        self._proxy: Final = proxy
        self._secure: Final = secure
        self._body: Final = timings.body
        self._host: Final = urlsplit(url).netloc.lower() if url else ""
        self._logins: Final = TokenBucket(LOGINS_PER_SECOND, LOGINS_BURST)
        self._login_turn = asyncio.Semaphore(4)

    @property
    def mode(self) -> str:
        """``token`` or ``proxy``."""
        return "token" if self._proxy is None else "proxy"

    def viewer(self, request: web.Request) -> tuple[Viewer, float]:
        """Return the viewer of a request and the remaining seconds; raises RefusedError if there is none."""
        if self._proxy is not None:
            headers: dict[str, list[str]] = {}
            for name, value in request.headers.items():
                headers.setdefault(name.lower(), []).append(value)
            return by_proxy(self._proxy, headers, _names_of(request)), float("inf")
        session = self._session(request)
        if session is None:
            raise log_in()
        return session.viewer, self.sessions.seconds_left(session)

    async def log_in(self, request: web.Request) -> tuple[Viewer, web.Response]:
        """Return the viewer of the token in the body, and the response with a cookie; raises RefusedError."""
        if self._proxy is not None:
            raise bad("login is disabled", "the proxy authenticates viewers")
        self._from_us(request)
        token = token_of((await _body(request, self._body)).get("token"))
        if not self._logins.take(time.monotonic()):
            raise busy("too many login attempts")
        async with self._login_turn:
            try:
                viewer = by_token(token, await review_identity(self._anonymous().with_token(token)))
            except KubeError as error:
                if error.status == 401:
                    raise RefusedError(
                        401, "the API server rejects this token", "use another one, it may have expired"
                    ) from None
                raise of_kube(error) from None
        if former := self._cookie(request):
            self.sessions.close(former)
        name = self.sessions.open(viewer)
        response = web.Response(status=204)
        response.set_cookie(self._name, name, httponly=True, secure=self._secure, samesite="Strict", path="/")
        return viewer, response

    def log_out(self, request: web.Request) -> tuple[str, web.Response]:
        """Return the viewer whose last session ended ("" if one remains), and the response that deletes the cookie."""
        self._from_us(request)
        session = self._session(request)
        ended = ""
        if session is not None:
            self.sessions.close(self._cookie(request))
            if not self.sessions.per_viewer()[session.viewer.key]:
                ended = session.viewer.key
        response = web.Response(status=204)
        response.del_cookie(self._name, path="/", httponly=True, secure=self._secure, samesite="Strict")
        return ended, response

    @property
    def _name(self) -> str:
        return _HOST_COOKIE if self._secure else _COOKIE

    def _cookie(self, request: web.Request) -> str:
        return request.cookies.get(self._name, "")

    def _session(self, request: web.Request) -> Session | None:
        name = self._cookie(request)
        return self.sessions.find(name) if name else None

    def _from_us(self, request: web.Request) -> None:
        """Raise RefusedError unless a page of this console sent the request.

        Browsers send Origin with every POST; a client without it is not a browser, and has no cookie of a viewer.
        """
        origin = _origin(request.headers.get("Origin", ""))
        host = self._host or request.headers.get("Host", "").lower()
        if not origin or origin != host:
            raise RefusedError(
                403, "the request is not from a page of the console", "open the console at its own address"
            )


def _origin(text: str) -> str:
    """Return host and port of an Origin, "" if it is invalid."""
    try:
        return urlsplit(text).netloc.lower()
    except ValueError:  # an unclosed bracket
        return ""


async def _body(request: web.Request, seconds: float) -> dict[str, Any]:
    if request.content_type != _JSON:
        raise RefusedError(415, "the body is not JSON", f"send it as {_JSON}")
    try:
        async with asyncio.timeout(seconds):
            body = await request.read()
    except TimeoutError:
        request.protocol.force_close()  # otherwise it waits for the rest of the body
        raise RefusedError(408, "reading the body timed out", "retry") from None
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise bad("the body is not JSON", 'send {"token": "…"}') from None
    if not isinstance(found, dict):
        raise bad("the body is not an object", 'send {"token": "…"}')
    return found


def _names_of(request: web.Request) -> frozenset[str]:
    """Return the names in the verified client certificate of a connection; empty if there is none."""
    found = request.transport.get_extra_info("peercert") if request.transport is not None else None
    if not found:
        return frozenset()
    common = (value for part in found.get("subject", ()) for name, value in part if name == "commonName")
    return frozenset([*common, *(value for kind, value in found.get("subjectAltName", ()) if kind == "DNS")])
