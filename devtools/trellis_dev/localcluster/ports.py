"""Free TCP ports on the loopback address.

In: how many. Out: port numbers that were free a moment ago. Called by `up` before each start of a component.
Invariant: ports come from below the ranges from which Linux (32768 up) and macOS (49152 up) give outgoing connections
theirs, so a component that is restarted on its port does not find it taken by some client. On Linux two processes are
not given the same port: the one that was given it keeps a socket bound to it, without listening, which lets a server
with SO_REUSEADDR listen there (every one in Go, Rust and asyncio) and keeps others from choosing it.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections import deque
from typing import Final

from trellis_dev.localcluster.errors import StartError

LOOPBACK: Final = "127.0.0.1"
_FIRST: Final = 20_000
_LAST: Final = 29_999
_TRIES: Final = 200
_KEPT: Final = 512
"""Sockets that are kept bound; the oldest goes first. A process that starts so many servers has ended some of them."""

_bound: deque[int] = deque()


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Go's listeners do: connections of the last owner that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen()
        except OSError:
            return False
    return True


def accepts(port: int, timeout: float = 1.0) -> bool:
    """Return whether something accepts connections on this port within ``timeout`` seconds."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=timeout).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports.

    Raises:
        StartError: if nearly every port of the range is taken.
    """
    found: list[int] = []
    for _ in range(_TRIES + count):
        if len(found) == count:
            return found
        port = random.randint(_FIRST, _LAST)  # noqa: S311 - no secret
        if port not in found and _take(port):
            found.append(port)
    raise StartError(f"no free port between {_FIRST} and {_LAST} on {LOOPBACK}: end what occupies them")


def _take(port: int) -> bool:
    """Return whether a port was free, and nobody's."""
    if sys.platform != "linux":  # elsewhere a bound socket keeps servers away
        return is_free(port)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
            # Only now: with it the bind would succeed beside a socket that another process keeps.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            return False
        _bound.append(probe.detach())
    while len(_bound) > _KEPT:
        os.close(_bound.popleft())
    return True
