"""Loads the address of the API server and credentials for it.

In: a kubeconfig (path and context), or the files of the service account of a pod. Out: ``Credentials`` that can be
re-read when tokens rotate. Called by ``trellis.kube.transport``. Only this module, ``client_package`` and
``kubeconfig`` use the untyped ``kubernetes`` package: its loaders and its HTTP session, never the typed API classes
(108 MiB of models). Invariant: no message contains a secret.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import AddrInfoType
from aiohttp.client_proto import ResponseHandler

from trellis.config.errors import SettingsError
from trellis.kube.client_package import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_PORT_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    ConfigException,
    Configuration,
    RESTClientObject,
    load_incluster_config,
)
from trellis.kube.exec_plugin import Plugin
from trellis.kube.timings import ConnectionTimings

KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Probes of a silent connection, in seconds and in number: a watch of a kind that does not change is not idle to what
is on the way, and a dead one is noticed after 60 s, also between two bookmarks."""
CONNECTIONS = 128
"""Connections to the API server at a time; each watch holds one."""
_HOME_KUBECONFIG = "~/.kube/config"


class AccessError(SettingsError):
    """The kubeconfig or the service account's files cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where credentials come from: a kubeconfig, else the pod's service account, else ``~/.kube/config``.

    ``kubeconfig`` may hold several paths, separated as in ``PATH``, as kubectl allows. ``context`` None means the
    kubeconfig's current one. ``without_identity``: the server's address and what it is known by count, nobody's
    proof of who he is: for requests that bring another's.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    without_identity: bool = False


class Credentials:
    """Address, trust anchors and the account's proof, read from ``Access``."""

    def __init__(self, access: Access, timings: ConnectionTimings = ConnectionTimings()) -> None:
        self._access = access
        self._timings = timings
        self._plugin = Plugin(timings.plugin)
        self._configuration: Any = None
        self._files: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """Address of the API server: ``https://host:port``."""
        return str(self._configuration.host).rstrip("/")

    @property
    def tls(self) -> tuple[object, ...]:
        """What a connection depends on: when it differs after ``load``, a new session is needed.

        Files count by what was in them at the last ``load``: certificates are rotated in place.
        """
        return (self._configuration.host, self._configuration.verify_ssl, *self._files)

    async def load(self) -> None:
        """Read everything (again). Makes no request to the API server.

        Raises:
            AccessError: a file is missing or makes no sense, or the context does not exist.
        """
        configuration = Configuration()
        source = _source(self._access)
        try:
            if source is None and self._access.without_identity:
                _load_place(configuration)
            elif source is None:
                load_incluster_config(client_configuration=configuration)
            else:
                from trellis.kube.kubeconfig import load_kubeconfig  # noqa: PLC0415 - a pod has none

                await load_kubeconfig(source, self._access.context, configuration, self._plugin)
        except Exception as error:  # noqa: BLE001 - the loaders raise whatever YAML, files and plugins raise
            message = f"cannot use {source or 'the service account of this pod'}: {_why(error)}"
            raise AccessError(message) from None
        if self._access.without_identity:
            _forget_identity(configuration)
        # The session's trust_env costs two thread hops a request and fails on a ~/.netrc with a default entry, so
        # the proxy is looked up here, once.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy_for(str(configuration.host))
        self._files = tuple(
            _digest(path) for path in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        )
        self._configuration = configuration

    def due(self) -> bool:
        """Return whether ``load`` is to be called before the next request: a plugin's credentials are over."""
        return self._plugin.due()

    def refused(self) -> None:
        """Note that the API server refused what the last ``load`` read."""
        self._plugin.refused()

    async def authorization(self) -> str | None:
        """Return the Authorization header; a pod's token is read again each minute.

        Raises:
            AccessError: the token file is gone or empty, the token cannot be sent, or the credential plugin failed.
        """
        if self._plugin.failure:
            raise AccessError(self._plugin.failure)
        try:
            value = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except (OSError, ConfigException) as error:
            message = f"cannot read the token for {self.server}: {_why(error)}"
            raise AccessError(message) from None
        token = str(value).strip() if value else ""
        if not (token.isascii() and token.isprintable()):
            raise AccessError(f"the token for {self.server} contains characters that are invalid in a header")
        return token or None

    def open_session(self, connections: int = CONNECTIONS) -> Session:
        """Return a new HTTP session with the client library's TLS settings, of so many connections at most.

        Raises:
            AccessError: a certificate or key cannot be loaded.
        """
        try:
            return Session(self._configuration, connections, self._timings.kept)
        except (OSError, ValueError) as error:
            message = f"cannot use the certificates for {self.server}: {_why(error)}"
            raise AccessError(message) from None


class _Connection(ResponseHandler):
    """One that is released at once: by itself TLS waits 30 s for the goodbye of a server that is frozen or cut off."""

    def close(self) -> None:
        self.abort()


class Session(RESTClientObject):  # type: ignore[misc]  # the package has no type hints
    """The client library's session, opened for requests of our own."""

    def __init__(self, configuration: Any, connections: int, kept: float) -> None:  # noqa: ANN401 - untyped package
        """``kept``: seconds for which an idle connection is kept."""
        super().__init__(configuration)
        self.maxsize = connections
        self._kept = kept
        self.http: aiohttp.ClientSession = self._create_pool_manager()
        self.pool_manager = self.http
        connector = self.http.connector
        assert connector is not None, "it is there until the session is closed"
        connector._factory = functools.partial(_Connection, loop=asyncio.get_running_loop())  # noqa: SLF001 - no way else
        self.options: dict[str, Any] = {
            name: value
            for name, value in (
                ("server_hostname", configuration.tls_server_name),
                ("proxy", configuration.proxy),
                ("proxy_headers", configuration.proxy_headers),
            )
            if value
        }

    def _create_connector(self) -> aiohttp.TCPConnector:
        """Return the pool of connections: the hook of the client library."""
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, keepalive_timeout=self._kept, socket_factory=_socket
        )


def _socket(address: AddrInfoType) -> socket.socket:
    """Return a socket for an address whose silence is probed; a system without an option keeps its own value."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _load_place(configuration: Any) -> None:  # noqa: ANN401 - untyped package
    """Read where the API server of this pod is, and what it is known by: a pod that is nobody has no token to read."""
    host, port = os.environ.get(SERVICE_HOST_ENV_NAME), os.environ.get(SERVICE_PORT_ENV_NAME)
    if not host or not port:
        message = f"{SERVICE_HOST_ENV_NAME} or {SERVICE_PORT_ENV_NAME} is not set"
        raise ConfigException(message)
    configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    configuration.ssl_ca_cert = SERVICE_CERT_FILENAME


def _forget_identity(configuration: Any) -> None:  # noqa: ANN401 - untyped package
    """Take away whatever would prove who asks: a certificate would count before any token that comes with a request."""
    configuration.cert_file = configuration.key_file = None
    configuration.username = configuration.password = None
    configuration.api_key, configuration.api_key_prefix = {}, {}
    configuration.refresh_api_key_hook = None


def _digest(path: str | None) -> str:
    """Return a digest of a file; "" for none, or one that cannot be read: opening the session says why."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""


def _source(access: Access) -> str | None:
    """Return the kubeconfig to read, None for the pod's service account."""
    if access.kubeconfig is not None:
        paths = [Path(part).expanduser() for part in str(access.kubeconfig).split(os.pathsep) if part]
        if not any(path.is_file() for path in paths):
            message = f"kubeconfig {access.kubeconfig} does not exist: set TRELLIS_KUBECONFIG to one that does"
            raise AccessError(message)
        return str(access.kubeconfig)
    # What proves who a pod is may be left out of it; what proves the API server never is.
    if Path(SERVICE_CERT_FILENAME if access.without_identity else SERVICE_TOKEN_FILENAME).is_file():
        return None
    home = Path(_HOME_KUBECONFIG).expanduser()
    if not home.is_file():
        message = f"no cluster configured: not running in a pod, and {home} does not exist: set TRELLIS_KUBECONFIG"
        raise AccessError(message)
    return str(home)


def _proxy_for(host: str) -> str | None:
    """Return the proxy the environment asks for; as with kubectl none for this very machine."""
    parts = urlsplit(host)
    if proxy_bypass(parts.hostname or "") or _is_loopback(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _why(error: BaseException) -> str:
    """Return an error's first line; a YAML error quotes the file, and with it perhaps a token."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"not valid YAML at line {mark.line + 1}"
    if isinstance(error, (TypeError, AttributeError, KeyError)):
        return "the kubeconfig is incomplete (clusters, users, contexts, current-context)"
    return (str(error).splitlines() or [type(error).__name__])[0]
