"""Who else is at the other end of a link: whose account it is, and whether another backend answers there.

In: a link. Out: the account's name with its server's, and a verdict. Called by ``serving``. Invariant: only an answer
that is another key than ours tells of another backend: silence tells nothing.
Source: ``$SYS.REQ.USER.INFO`` of nats-server 2.10 to 2.15; ``server_xkey`` answers the bare public key.
"""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from secrets_backend.key import Key
from trellis.lattice.link import Link, LinkAwayError, NobodyAnswersError

USER_INFO: Final = "$SYS.REQ.USER.INFO"
_SECONDS: Final = 2.0
_TIMES: Final = 4
"""Each question goes to one member of the queue group: the other backend may be one of several."""


async def account(link: Link) -> str | None:
    """Return what names the account that a link leads into, None if it is not told."""
    try:
        return account_in(await link.ask(USER_INFO, seconds=_SECONDS))
    except LinkAwayError:
        return None


def account_in(answer: bytes) -> str | None:
    """Return what names an account in a server's answer: the cluster of servers, or the server, and the account."""
    try:
        found = orjson.loads(answer)
        server, name = found["server"], found["data"]["account"]
        where = server.get("cluster") or server["id"]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return f"{where}/{name}" if isinstance(where, str) and isinstance(name, str) else None


async def other_backend(link: Link, subject: str, key: Key) -> bool:
    """Return whether something else than this service's replicas answers with a key.

    Raises:
        LinkAwayError: the link is away.
    """
    answers = await asyncio.gather(*(_ask(link, subject) for _ in range(_TIMES)))
    for answer in {one for one in answers if one is not None}:
        if not _is_ours(answer, key) and not (await key.doubt() and _is_ours(answer, key)):
            return True
    return False


async def _ask(link: Link, subject: str) -> bytes | None:
    try:
        return await link.ask(subject, seconds=_SECONDS)
    except NobodyAnswersError:
        return None
    except LinkAwayError:
        if link.since is None:
            raise
        return None  # somebody listens and does not answer, or this user may not ask


def _is_ours(answer: bytes, key: Key) -> bool:
    return any(answer == one.public.encode() for one in (key.ring.current, *key.ring.previous))
