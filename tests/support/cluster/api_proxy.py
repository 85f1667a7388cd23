"""A proxy in front of an API server that answers as servers in trouble do: busy, broken, late, forgetful, not at all.

In: the kubeconfig of a cluster. Out: one that leads through the proxy, whose certificate is of an authority of its own.
What is asked goes on to the real server as it came, with its token. Called by tests and by chaos.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
import ssl
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import aiohttp
import yaml
from aiohttp import web

from trellis_dev.localcluster.certs import write_pki
from trellis_dev.localcluster.ports import free_ports

_QUIET = logging.getLogger(__name__)
"""What it is told of connections that tests cut is nobody's concern."""
_QUIET.disabled = True
_CLOSED_WITHIN = 10.0
"""Seconds for the goodbyes of all connections to the real server."""
_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})
_STATUS = {429: "TooManyRequests", 500: "InternalError", 401: "Unauthorized", 410: "Expired"}


class Trouble(StrEnum):
    """The behaviour of a faulty server."""

    BUSY = "429"
    BROKEN = "500"
    EXPIRED = "401"
    GONE = "410"
    ANSWERS_LOST = "answers-lost"


class ApiProxy:
    """An asynchronous context manager. ``trouble``: what it has now; ``late``: seconds that each request waits.

    ``withheld``: what begins so is not served, as a kind without its CRD; ``broken``: it is answered by 500, as a kind
    whose conversion webhook fails.
    ``keeps``: connections to the real server are used again; half of what a proxy does would be making them.
    """

    def __init__(self, kubeconfig: Path, directory: Path, *, keeps: bool = False) -> None:
        self._config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        self._directory = directory
        cluster = self._config["clusters"][0]["cluster"]
        self._server = str(cluster["server"])
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode("ascii")
        self._upstream = ssl.create_default_context(cadata=authority)
        self._keeps = keeps
        self._watches: set[asyncio.Task[Any]] = set()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self.trouble: Trouble | None = None
        self.late = 0.0
        self.withheld = self.broken = ""
        (self.port,) = free_ports(1)
        self.authorities: list[bytes] = []

    async def __aenter__(self) -> Self:
        # One that is kept and that the real server closed with its end may be an error of the proxy's: who counts
        # errors has none kept.
        connector = aiohttp.TCPConnector(
            ssl=self._upstream, limit=0, force_close=not self._keeps, socket_factory=self._socket
        )
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        await self._listen()
        return self

    async def exchange_authority(self) -> None:
        """Go on, on the same port, with a certificate of a new authority; all connections end."""
        await self._runner.cleanup()
        await self._listen()

    async def _listen(self) -> None:
        pki = self._directory / f"proxy-pki-{len(self.authorities)}"
        pki.mkdir(parents=True)
        write_pki(pki)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pki / "kube-apiserver.crt", pki / "kube-apiserver.key")
        self.authorities.append((pki / "ca.crt").read_bytes())
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_QUIET, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls).start()

    async def __aexit__(self, *_: object) -> None:
        self.cut_watches()
        await self._runner.cleanup()
        await self._session.close()
        # A connection that was released before says goodbye to the real server first, and no one waits for it.
        async with asyncio.timeout(_CLOSED_WITHIN):
            while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110 (a socket has no event)
                await asyncio.sleep(0.01)

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    def kubeconfig(self, port: int, path: Path) -> Path:
        """Write a kubeconfig that leads to a port of this machine, behind which is the proxy."""
        cluster = self._config["clusters"][0]["cluster"] | {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority-data": base64.b64encode(self.authorities[-1]).decode("ascii"),
        }
        path.touch(mode=0o600)
        clusters = [self._config["clusters"][0] | {"cluster": cluster}]
        path.write_text(yaml.safe_dump(self._config | {"clusters": clusters}), encoding="utf-8")
        return path

    def cut_watches(self) -> None:
        """End all watches in the middle of what they say."""
        for task in self._watches:
            task.cancel()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.late:
            await asyncio.sleep(self.late)
        watches = request.query.get("watch", "") in {"true", "1"}
        if self.withheld and request.path.startswith(self.withheld):
            return web.Response(status=web.HTTPNotFound.status_code, text="404 page not found\n")
        if self.broken and request.path.startswith(self.broken):
            return _refused(int(Trouble.BROKEN))
        match self.trouble:
            case Trouble.BUSY | Trouble.BROKEN | Trouble.EXPIRED:
                return _refused(int(self.trouble))
            case Trouble.GONE if watches and request.query.get("resourceVersion", "0") != "0":
                return await _respond_gone(request)
            case _:
                return await self._forward(request, watches=watches)

    async def _forward(self, request: web.Request, *, watches: bool) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        body = await request.read()
        url = self._server + request.raw_path
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        try:
            async with self._session.request(
                request.method, _as_is(url), headers=headers, data=body or None, timeout=timeout
            ) as found:
                if self.trouble is Trouble.ANSWERS_LOST and not watches:
                    await found.read()
                    raise ConnectionResetError  # it was done, and nobody is told
                return await self._stream(request, found, watches=watches)
        except (aiohttp.ClientError, OSError):
            if request.transport is not None:
                request.transport.abort()
            raise

    async def _stream(
        self, request: web.Request, found: aiohttp.ClientResponse, *, watches: bool
    ) -> web.StreamResponse:
        kept = {name: value for name, value in found.headers.items() if name.lower() not in _HOP}
        response = web.StreamResponse(status=found.status, headers=kept)
        task = asyncio.current_task()
        assert task is not None
        if watches:
            self._watches.add(task)
        try:
            await response.prepare(request)
            async for chunk in found.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        finally:
            self._watches.discard(task)
        return response


def _as_is(url: str) -> Any:
    return aiohttp.client.URL(url, encoded=True)


def _status(code: int) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": _STATUS[code],
        "code": code,
        "message": "by a test",
    }


def _refused(code: int) -> web.Response:
    headers = {"Retry-After": "1"} if code == web.HTTPTooManyRequests.status_code else {}
    return web.json_response(_status(code), status=code, headers=headers)


async def _respond_gone(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    with contextlib.suppress(OSError):
        await response.prepare(request)
        await response.write(json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n")
        await response.write_eof()
    return response
