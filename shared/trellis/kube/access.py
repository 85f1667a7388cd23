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
import re
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
"""TCP keepalive in seconds and number of probes: keeps a watch without events from being idle for middleboxes, and
detects a dead connection after 60 s, also between two bookmarks."""
CONNECTIONS = 128
"""Maximum number of connections to the API server; each watch uses one."""
_NO_CONTEXT = re.compile(r"Expected object with name (\S+) in .*/contexts list")
"""The library's text for a context that the kubeconfig does not have."""
_HOME_KUBECONFIG = "~/.kube/config"


class AccessError(SettingsError):
    """The kubeconfig or the service account's files cannot be used; the message names the file and the cause."""


@dataclass(frozen=True, slots=True)
class Access:
    """Source of credentials: a kubeconfig, else the pod's service account, else ``~/.kube/config``.

    ``kubeconfig`` can contain several paths, separated as in ``PATH``, as for kubectl. ``context`` None means the
    kubeconfig's current one. ``without_identity``: use only the address and CA of the server, without credentials, for
    requests with the token of a user.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    without_identity: bool = False


class Credentials:
    """Address, CA certificates and credentials of the account, read from ``Access``."""

    def __init__(self, access: Access, timings: ConnectionTimings = ConnectionTimings()) -> None:
        self._access = access
        self._timings = timings
        self._plugin = Plugin(timings.plugin)
        self._configuration: Any = None
        self._files: tuple[str, ...] = ()
        self._nearby = False

    @property
    def server(self) -> str:
        """Address of the API server: ``https://host:port``."""
        return str(self._configuration.host).rstrip("/")

    @property
    def nearby(self) -> bool:
        """Return whether the API server is in the same cluster or on the same machine."""
        return self._nearby

    @property
    def tls(self) -> tuple[object, ...]:
        """TLS configuration of connections: if it differs after ``load``, a new session is required.

        It contains digests of the files at the last ``load``: certificates are rotated in place.
        """
        return (self._configuration.host, self._configuration.verify_ssl, *self._files)

    async def load(self) -> None:
        """Read or re-read all files, without a request to the API server.

        Raises:
            AccessError: a file is missing or invalid, or the context does not exist.
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
        except Exception as error:  # noqa: BLE001 - the loaders raise exceptions of YAML, files and plugins
            message = f"cannot use {source or 'the service account of this pod'}: {_first_line(error)}"
            raise AccessError(message) from None
        if self._access.without_identity:
            _forget_identity(configuration)
        # The session's trust_env requires two thread hops per request and fails on a ~/.netrc with a default entry, so
        # the proxy is determined here, once.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy_for(str(configuration.host))
        self._files = tuple(
            _digest(path) for path in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        )
        self._nearby = source is None or _is_loopback(urlsplit(str(configuration.host)).hostname or "")
        self._configuration = configuration

    def due(self) -> bool:
        """Return whether ``load`` has to be called before the next request: a plugin's credentials expired."""
        return self._plugin.due()

    def refused(self) -> None:
        """Record that the API server rejected the credentials of the last ``load``."""
        self._plugin.refused()

    async def authorization(self) -> str | None:
        """Return the Authorization header; the token of a pod is re-read each minute.

        Raises:
            AccessError: the token file is missing or empty, the token is invalid in a header, or the plugin failed.
        """
        if self._plugin.failure:
            raise AccessError(self._plugin.failure)
        try:
            value = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except (OSError, ConfigException) as error:
            message = f"cannot read the token for {self.server}: {_first_line(error)}"
            raise AccessError(message) from None
        token = str(value).strip() if value else ""
        if not (token.isascii() and token.isprintable()):
            raise AccessError(f"the token for {self.server} contains characters that are invalid in a header")
        return token or None

    def open_session(self, connections: int = CONNECTIONS) -> Session:
        """Return a new HTTP session with the client library's TLS settings and at most ``connections``.

        Raises:
            AccessError: a certificate or key cannot be loaded.
        """
        try:
            return Session(self._configuration, connections, self._timings.kept)
        except (OSError, ValueError) as error:
            message = f"cannot use the certificates for {self.server}: {_first_line(error)}"
            raise AccessError(message) from None


class _Connection(ResponseHandler):
    """A connection that is closed immediately: TLS waits 30 s for the close of an unreachable server."""

    def close(self) -> None:
        self.abort()


class Session(RESTClientObject):  # type: ignore[misc]  # the package has no type hints
    """The HTTP session of the client library, for raw requests."""

    def __init__(self, configuration: Any, connections: int, kept: float) -> None:  # noqa: ANN401 - untyped package
        """Open the session; ``kept``: seconds for which an idle connection is kept."""
        super().__init__(configuration)
        self.maxsize = connections
        self._kept = kept
        self.http: aiohttp.ClientSession = self._create_pool_manager()
        self.pool_manager = self.http
        connector = self.http.connector
        assert connector is not None, "it exists until the session is closed"
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
        """Return the connection pool; a hook of the client library."""
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, keepalive_timeout=self._kept, socket_factory=_socket
        )


def _socket(address: AddrInfoType) -> socket.socket:
    """Return a socket with keepalive for an address; options that the system does not support keep their default."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _load_place(configuration: Any) -> None:  # noqa: ANN401 - untyped package
    """Set the address and CA of the API server of this pod, without a service account token."""
    host, port = os.environ.get(SERVICE_HOST_ENV_NAME), os.environ.get(SERVICE_PORT_ENV_NAME)
    if not host or not port:
        message = f"{SERVICE_HOST_ENV_NAME} or {SERVICE_PORT_ENV_NAME} is not set"
        raise ConfigException(message)
    configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    configuration.ssl_ca_cert = SERVICE_CERT_FILENAME


def _forget_identity(configuration: Any) -> None:  # noqa: ANN401 - untyped package
    """Remove all credentials: the server would prefer a client certificate to the token of a request."""
    configuration.cert_file = configuration.key_file = None
    configuration.username = configuration.password = None
    configuration.api_key, configuration.api_key_prefix = {}, {}
    configuration.refresh_api_key_hook = None


def _digest(path: str | None) -> str:
    """Return a digest of a file; "" if there is none or it cannot be read: opening the session raises the error."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""


def _source(access: Access) -> str | None:
    """Return the kubeconfig to read, None for the pod's service account."""
    if access.kubeconfig is not None:
        paths = [Path(part).expanduser() for part in str(access.kubeconfig).split(os.pathsep) if part]
        if not any(path.is_file() for path in paths):
            message = (
                f"kubeconfig {access.kubeconfig} does not exist: set KUBECONFIG or TRELLIS_KUBECONFIG to one that does"
            )
            raise AccessError(message)
        return str(access.kubeconfig)
    # The token can be missing in a pod; the CA certificate of the API server always exists.
    if Path(SERVICE_CERT_FILENAME if access.without_identity else SERVICE_TOKEN_FILENAME).is_file():
        return None
    home = Path(_HOME_KUBECONFIG).expanduser()
    if not home.is_file():
        message = f"no cluster configured: not running in a pod, and {home} does not exist: set KUBECONFIG"
        raise AccessError(message)
    return str(home)


def _proxy_for(host: str) -> str | None:
    """Return the proxy from the environment; as in kubectl, no proxy for the local machine."""
    parts = urlsplit(host)
    if proxy_bypass(parts.hostname or "") or _is_loopback(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _first_line(error: BaseException) -> str:
    """Return an error's first line; without the text of a YAML error, which can quote a token."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"not valid YAML at line {mark.line + 1}"
    if isinstance(error, (TypeError, AttributeError, KeyError)):
        return "the kubeconfig is incomplete (clusters, users, contexts, current-context)"
    text = (str(error).splitlines() or [type(error).__name__])[0]
    missing = _NO_CONTEXT.search(text)
    return f'context "{missing[1]}" does not exist' if missing else text
