"""Hosts of the real runtime in tests/e2e/v2: types of the fixtures, and requests to what the hosts serve."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from trellis_dev.localcluster.v2host import V2Host, V2HostOptions

StartHost = Callable[[V2HostOptions], V2Host]


@dataclass(frozen=True)
class Images:
    """A registry ``host:port`` without TLS, and the digest of each recorded image in it."""

    registry: str
    digests: dict[str, str]


def get(address: str, host: str) -> tuple[int, str]:
    """Return status and body of the answer to a GET request to ``address:port`` with a Host header."""
    request = urllib.request.Request(f"http://{address}/", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
