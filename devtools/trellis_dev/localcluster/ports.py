"""Free TCP ports on the loopback address.

In: the number of ports. Out: ports that are free at that moment. Called by `up` before each start of a component.
Invariant: ports are below the ephemeral ranges of Linux (32768 up) and macOS (49152 up), so no client occupies the port
of a component during its restart. On Linux two processes do not get the same port: the caller keeps a socket bound to
it, without listening. A server with SO_REUSEADDR (all in Go, Rust and asyncio) can still listen there, but other
processes cannot choose the port.
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
"""Sockets that are kept bound; the oldest is closed first. A process with so many servers has ended some of them."""

_bound: deque[int] = deque()


def is_free(port: int) -> bool:
    """Return whether a server can listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Like the listeners of Go: connections of the previous owner in TIME_WAIT do not block.
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
        StartError: nearly every port of the range is in use.
    """
    found: list[int] = []
    for _ in range(_TRIES + count):
        if len(found) == count:
            return found
        port = random.randint(_FIRST, _LAST)  # noqa: S311 - not a secret
        if port not in found and _take(port):
            found.append(port)
    raise StartError(f"no free port between {_FIRST} and {_LAST} on {LOOPBACK}: stop processes that listen there")


def _take(port: int) -> bool:
    """Reserve a port; return whether it was free and unreserved."""
    if sys.platform != "linux":  # elsewhere a bound socket blocks servers
        return is_free(port)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
            # Only now: with it the bind would succeed on a port that another process has reserved.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            return False
        _bound.append(probe.detach())
    while len(_bound) > _KEPT:
        os.close(_bound.popleft())
    return True
