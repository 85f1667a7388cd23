"""Requests to a NATS server, synchronous and without a client library, for readiness checks.

In: port, subject, body. Out: the bodies of the replies. Called by `up` (wadm is ready, a host is in its lattice).
Invariant: an unreachable server or an invalid response equals a missing reply.
"""

from __future__ import annotations

import secrets
import socket
import time
from typing import BinaryIO, Final

from trellis_dev.localcluster.ports import LOOPBACK

_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
_NO_RESPONDERS: Final = b"NATS/1.0 503"


def request(port: int, subject: str, body: bytes = b"", *, seconds: float = 2.0, host: str = LOOPBACK) -> bytes | None:
    """Return the first reply; None if there is no reply within ``seconds``, no server, or no responder."""
    deadline = time.monotonic() + seconds
    inbox = f"_INBOX.{secrets.token_hex(11)}"
    sent = f"SUB {inbox} 1\r\nPUB {subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\n"
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(_CONNECT + sent)
            with connection.makefile("rb") as stream:
                return _reply(connection, stream, deadline)
    except (OSError, ValueError):
        return None


def _reply(connection: socket.socket, stream: BinaryIO, deadline: float) -> bytes | None:
    """Read until the first message. Raise TimeoutError (an OSError) if it does not arrive in time."""
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        tokens = stream.readline().split()
        if not tokens or tokens[0] == b"-ERR":
            return None
        if tokens[0] == b"PING":
            connection.sendall(b"PONG\r\n")
        elif tokens[0] in {b"MSG", b"HMSG"}:
            content = stream.read(int(tokens[-1]))
            headers = int(tokens[-2]) if tokens[0] == b"HMSG" else 0
            return None if content.startswith(_NO_RESPONDERS) else content[headers:]
