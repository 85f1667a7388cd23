"""The listening socket of the console: address, TLS, and the maximum number of connections.

In: settings, an application. Out: a server. Called by ``app``. Invariant: clients can open a limited number of
connections, and further ones do not affect established connections.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from typing import Final

from aiohttp import web

from console.domain.limits import CONNECTIONS
from console.settings import Settings
from console.timings import Timings
from trellis.config.errors import SettingsError


class Listener:
    """The HTTP server, from start to stop."""

    def __init__(
        self,
        application: web.Application,
        settings: Settings,
        most: int = CONNECTIONS,
        *,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> None:
        self._runner: Final = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=timings.shutdown,
            keepalive_timeout=timings.keepalive,
            handler_cancellation=True,  # a disconnected client frees its place
        )
        self._settings: Final = settings
        self._most: Final = most
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Start to listen, and return the port.

        Raises:
            SettingsError: the port is unavailable, or a certificate is invalid.
        """
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # set by setup
        listener = _socket(self._settings)
        tls = _tls(self._settings)
        self._server = await asyncio.get_running_loop().create_server(
            partial(self._admit, server), sock=listener, ssl=tls
        )
        port: int = listener.getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening, and close open connections."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _admit(self, server: web.Server) -> asyncio.Protocol:
        """Return the handler of a new connection; beyond the limit one that closes it: open streams continue."""
        return server() if len(server.connections) < self._most else _HangUp()


class _HangUp(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _socket(settings: Settings) -> socket.socket:
    port, address = settings.console_port, settings.console_address
    try:
        if address is not None:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            return socket.create_server((address, port), family=family)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"TRELLIS_CONSOLE_PORT: has {port}, cannot listen: {reason}") from error


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.console_tls_cert_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.console_tls_cert_file, settings.console_tls_key_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"TRELLIS_CONSOLE_TLS_CERT_FILE: cannot be used: {error}") from None
    if settings.console_proxy_ca_file is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(settings.console_proxy_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"TRELLIS_CONSOLE_PROXY_CA_FILE: cannot be used: {error}") from None
    return context
