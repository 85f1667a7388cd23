"""Connections of stand-ins that outlive restarts of the server.

In: what `nats.connect` takes. Out: a connected client that never gives up. Invariant: no socket is left to the garbage
collector, which pytest counts as a failure of whatever test runs then: the library's own client connects over an
attempt that failed after its socket was open, as happens with a server that is just being killed.
"""

from __future__ import annotations

from typing import Any

from trellis.bus.connection.user_client import UserClient

_GOODBYE_SECONDS = 5.0


async def reconnecting(url: str, **options: Any) -> UserClient:
    """Return a client that is connected, and comes back after each restart.

    Raises:
        OSError, nats.errors.Error: if the server cannot be reached now.
    """
    client = UserClient.of(None)
    await client.connect(url, **{"max_reconnect_attempts": -1, "reconnect_time_wait": 0, **options})
    return client


async def left(client: UserClient) -> None:
    """Close it in any state of its connection."""
    await client.close_permanently(_GOODBYE_SECONDS)
