"""Returns the size of each stream, for users.

In: the address. Out: a row per stream of the subject table. Called by the command line. Read-only, without retries.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from trellis.bus.connection.connection import describe
from trellis.bus.connection.dial import dial, hang_up
from trellis.bus.errors import BusUnavailable
from trellis.bus.timings import DialTimings
from trellis.config.nats_credentials import Credentials
from trellis.events.subjects import STREAM_SUBJECTS
from trellis.installer_api.redaction import redact_url


@dataclass(frozen=True, slots=True)
class StreamCount:
    """One stream; ``messages`` and ``size`` (bytes) are None if the stream does not exist.

    ``first``: sequence of the oldest message, None if the stream is empty.
    """

    name: str
    messages: int | None
    size: int | None
    first: int | None = None


async def stream_sizes(
    url: str, credentials: Credentials | None = None, timings: DialTimings = DialTimings()
) -> list[StreamCount]:
    """Return the current size of each stream, in the order of the subject table.

    The timeout is the sum of ``connect`` and ``answer`` seconds.

    Raises:
        BusUnavailable: NATS or its JetStream did not answer.
    """
    client = await dial(url, "trellis-status", credentials, timings=timings)
    try:
        async with asyncio.timeout(timings.answer):
            return [await _count(client, name) for name in STREAM_SUBJECTS]
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise BusUnavailable(f"no NATS with JetStream at {redact_url(url)}: {describe(error)}") from error
    finally:
        await hang_up(client, timings)


async def _count(client: Client, name: str) -> StreamCount:
    try:
        info = await client.jetstream().stream_info(name)
    except NotFoundError:
        return StreamCount(name, None, None)
    state = info.state
    return StreamCount(name, state.messages, state.bytes, state.first_seq if state.messages else None)
