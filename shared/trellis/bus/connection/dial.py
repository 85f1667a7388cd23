"""The connection of a command: fails fast without a server, waits out later outages.

In: the address. Out: a connected client. Called by commands that read the bus. Invariant: the first attempt ends within
three seconds, and its error is reported as a message.
"""

from __future__ import annotations

import asyncio

import nats.errors

from trellis.bus.accounts.permissions import CLI_INBOX
from trellis.bus.connection.connection import describe
from trellis.bus.connection.user_client import UserClient
from trellis.bus.errors import BusUnavailable
from trellis.bus.timings import DialTimings
from trellis.config.nats_credentials import Credentials
from trellis.installer_api.redaction import redact_url


async def dial(
    url: str,
    name: str,
    credentials: Credentials | None = None,
    *,
    inbox: str = CLI_INBOX,
    timings: DialTimings = DialTimings(),
) -> UserClient:
    """Return a connected client that reconnects by itself after an outage.

    Args:
        url: URL of the NATS server, or several separated by commas.
        name: name of the connection in NATS' monitoring.
        credentials: credentials of the user; without them, the user in the URL connects.
        inbox: prefix of every inbox; defaults to that of the user ``cli``.
        timings: timings of the attempts.

    Raises:
        BusUnavailable: no NATS server is reachable at any of the addresses.
    """
    servers = [part.strip() for part in url.split(",")]
    failures: list[Exception] = []
    connected = False

    async def on_error(error: Exception) -> None:
        failures.append(error)
        # Fail fast if no server is reachable. A reset may hide the reason of a refusal: retry.
        if not connected and len(servers) == 1 and not isinstance(error, ConnectionResetError):
            raise error

    client = UserClient.of(credentials, timings.client)
    try:
        async with asyncio.timeout(timings.connect):
            await client.connect(
                servers=servers,
                name=name,
                inbox_prefix=inbox,
                max_reconnect_attempts=-1,
                reconnect_time_wait=timings.again,
                error_cb=on_error,
            )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        reason = describe(failures[-1] if failures else error)
        await hang_up(client, timings)  # may add to failures, so the reason is read before
        raise BusUnavailable(f"no NATS at {redact_url(url)}: {reason}") from error
    except BaseException:
        client.hang_up()
        raise
    connected = True
    return client


async def hang_up(client: UserClient, timings: DialTimings = DialTimings()) -> None:
    """Close a client in any state of its connection, with a timeout for the answer of the server."""
    await client.close_permanently(timings.goodbye)
