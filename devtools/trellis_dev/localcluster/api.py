"""Requests to the API server of a local cluster, synchronous and without a client library.

In: method, path, object. Out: status and decoded response. Called by `up` (readiness, nodes) and by test fixtures; the
services have their own client. Invariant: the certificate of the server is verified against the CA of the cluster.
Each thread keeps one connection open.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Final, Self

import yaml

from trellis_dev.localcluster.certs import read_token
from trellis_dev.localcluster.ports import LOOPBACK

_SECONDS: Final = 10.0
_TRIES: Final = 10
"""As client-go."""


class Api:
    """Requests to one API server with one token."""

    def __init__(self, port: int, token: str, authority: str, host: str = LOOPBACK) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._tls = ssl.create_default_context(cadata=authority)
        self._tls.verify_flags |= ssl.VERIFY_X509_STRICT
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPSConnection] = set()

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Self:
        """Return a client for the user of a kubeconfig that `up` wrote."""
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode("ascii")
        host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
        return cls(int(port), config["users"][0]["user"]["token"], authority, host)

    @classmethod
    def of_pki(cls, port: int, pki: Path, host: str = LOOPBACK) -> Self:
        """Return a client for the administrator, without a kubeconfig."""
        return cls(port, read_token(pki, "admin"), (pki / "ca.crt").read_text(encoding="ascii"), host)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Return HTTP status and decoded response (empty unless it is a JSON object). A PATCH is a merge patch.

        As kubectl does, it sends a request again that the server did not process: 429 with Retry-After, for example
        while the caches of a restarted server are empty.

        Raises:
            OSError: the server cannot be reached, or does not respond within 10 s.
        """
        reused = getattr(self._local, "connection", None) is not None
        for _ in range(_TRIES):
            try:
                status, content, wait = self._exchange(method, path, body)
            except OSError:
                # A connection from before a restart of the server fails only on its next use.
                if not reused:
                    raise
                status, content, wait = self._exchange(method, path, body)
            if status != http.HTTPStatus.TOO_MANY_REQUESTS or wait is None:
                break
            time.sleep(wait)
        try:
            decoded = json.loads(content)
        except ValueError:
            decoded = {}
        return status, decoded if isinstance(decoded, dict) else {}

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes, int | None]:
        """Return status, content, and the seconds of Retry-After, None without it."""
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=_SECONDS)
            self._local.connection = connection
        with self._lock:
            self._open.add(connection)  # each time: a closed connection reopens on use
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            wait = answer.headers.get("Retry-After", "")
            return answer.status, answer.read(), int(wait) if wait.isdecimal() else None
        except (OSError, http.client.HTTPException) as error:
            self.close_own()
            raise OSError(f"{method} {path} on {self._host}:{self._port}: {error}") from error

    def ok(self, path: str) -> bool:
        """Return whether a GET returns 200; False also if the server cannot be reached."""
        try:
            return self.call("GET", path)[0] == http.HTTPStatus.OK
        except OSError:
            return False

    def close(self) -> None:
        """Close the connections of all threads; no request may be running. A connection reopens on its next use."""
        with self._lock:
            closing, self._open = self._open, set()
        for connection in closing:
            connection.close()

    def close_own(self) -> None:
        """Close the connection of this thread only, at its end; other threads can continue."""
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None
            with self._lock:
                self._open.discard(connection)
