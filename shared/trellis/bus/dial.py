"""The connection of a command: refused at once if nobody is there, later outages are waited out.

In: the address. Out: a connected client. Called by what reads the bus for people. Invariant: the first attempt takes
three seconds at most, and what it met is said in words.
"""

from __future__ import annotations

import asyncio
from typing import Final

import nats.errors

from trellis.bus.connection import describe
from trellis.bus.errors import BusUnavailable
from trellis.bus.permissions import PEOPLE_INBOX
from trellis.bus.user_client import UserClient
from trellis.credentials import Credentials
from trellis.redaction import redact_url

AGAIN_SECONDS: Final = 1
"""Between two attempts, once there was a connection."""

_CONNECT_SECONDS: Final = 3
_GOODBYE_SECONDS: Final = 2.0


async def dial(url: str, name: str, credentials: Credentials | None = None, *, inbox: str = PEOPLE_INBOX) -> UserClient:
    """Return a client that is connected, and that comes back by itself after an outage.

    Args:
        url: of the NATS server, or several separated by commas.
        name: of the connection in NATS' monitoring.
        credentials: who connects; without them it is whoever the URL says.
        inbox: prefix of every inbox, those of people if not said.

    Raises:
        BusUnavailable: there is no NATS at any of the addresses.
    """
    servers = [part.strip() for part in url.split(",")]
    failures: list[Exception] = []
    connected = False

    async def on_error(error: Exception) -> None:
        failures.append(error)
        # Nobody is there: people do not want to wait for that. A reset may hide why the server refuses: ask again.
        if not connected and len(servers) == 1 and not isinstance(error, ConnectionResetError):
            raise error

    client = UserClient.of(credentials)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await client.connect(
                servers=servers,
                name=name,
                inbox_prefix=inbox,
                max_reconnect_attempts=-1,
                reconnect_time_wait=AGAIN_SECONDS,
                error_cb=on_error,
            )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        why = describe(failures[-1] if failures else error)
        await hang_up(client)  # which may meet, and note, what came of it
        raise BusUnavailable(f"no NATS at {redact_url(url)}: {why}") from error
    except BaseException:
        client.hang_up()
        raise
    connected = True
    return client


async def hang_up(client: UserClient) -> None:
    """Close a client, in whatever state its connection is; waits two seconds at most for the server's goodbye."""
    await client.say_goodbye(_GOODBYE_SECONDS)
