"""Detects another secrets backend on a lattice connection.

In: a connection. Out: a verdict. Called by ``serving``. Invariant: only an answer with another key proves another
backend; a missing answer proves nothing. Source: ``server_xkey`` answers the bare public key.
"""

from __future__ import annotations

import asyncio
from typing import Final

from secrets_backend.key import Key
from trellis.lattice.connection.lattice_connection import (
    LatticeConnection,
    NatsUnavailableError,
    NoLatticeRespondersError,
)

_TIMES: Final = 4
"""Each request goes to one member of the queue group: the other backend may be one of several."""


async def other_backend(connection: LatticeConnection, subject: str, key: Key, seconds: float) -> bool:
    """Return whether a process other than this service's replicas answers with a key, within ``seconds``.

    Raises:
        NatsUnavailableError: the connection is down.
    """
    answers = await asyncio.gather(*(_ask(connection, subject, seconds) for _ in range(_TIMES)))
    for answer in {item for item in answers if item is not None}:
        if not _is_ours(answer, key) and not (await key.invalidate() and _is_ours(answer, key)):
            return True
    return False


async def _ask(connection: LatticeConnection, subject: str, seconds: float) -> bytes | None:
    try:
        return await connection.ask(subject, seconds=seconds)
    except NoLatticeRespondersError:
        return None
    except NatsUnavailableError:
        if connection.since is None:
            raise
        return None  # a subscriber does not answer, or this user lacks the permission to publish


def _is_ours(answer: bytes, key: Key) -> bool:
    return any(answer == item.public.encode() for item in (key.ring.current, *key.ring.previous))
