"""Which links lead into one account of NATS: those that hear each other, both ways.

In: links. Out: pairs of links that are one account. Called by ``serving``, for each connection. Invariant: only a word
that was said on one link and heard on the other makes two links one, so whoever is in no account of a link gets nothing
of its grant. Why nobody is asked whose account it is: a group of hosts may name a server of its own, which answers
anything, and on a shared one whoever subscribes ``$SYS.REQ.USER.INFO`` is asked, too (nats-server 2.15).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field
from typing import Final

from secrets_backend.gather import Known
from trellis.lattice.address import LinkAddress
from trellis.lattice.link import INBOX, Link, LinkAwayError

_BYTES: Final = 16
_SECONDS: Final = 0.75
_BACK_SECONDS: Final = 3.0
"""For which a link waits for those that were of its account; requests wait with it, and hosts wait for 10 s."""
_TIMES: Final = 2
"""A word may be lost with a connection; what is not heard twice is not heard."""


@dataclass(eq=False, slots=True)
class _Ear:
    """Where a link hears. Nobody knows ``subject``, or a word, but who is in the account of a link it is said on."""

    link: Link
    subject: str = field(default_factory=lambda: f"{INBOX}.{secrets.token_hex(_BYTES)}.account")
    expected: dict[bytes, asyncio.Event] = field(default_factory=dict)

    def hear(self, _subject: str, word: bytes) -> None:
        """Note a word that was said."""
        if (event := self.expected.get(word)) is not None:
            event.set()


class Accounts:
    """Tells ``known`` which links are one account."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._ears: dict[LinkAddress, _Ear] = {}

    async def join(self, address: LinkAddress, link: Link) -> None:
        """Let a link hear; to be called before it connects."""
        ear = self._ears[address] = _Ear(link)
        await link.listen(ear.subject, ear.hear)

    def leave(self, address: LinkAddress, link: Link) -> None:
        """Forget a link, unless there is a newer one by this address."""
        if address in self._ears and self._ears[address].link is link:
            del self._ears[address]

    async def look(self, address: LinkAddress, link: Link) -> None:
        """Find out which other links are one account with this one, by the connections of now.

        What was known by a former connection counts no more: the server may be another one, which is told nothing that
        only the former account's groups are granted. A link that is away is waited for a little where it was one with
        this, so that both may come back in any order; it looks for itself when it is there again.
        """
        mine = self._ears[address]
        if mine.link is not link:
            return  # this one ends
        await self._wait_for_former(address)
        others = [(one, ear) for one, ear in self._ears.items() if ear is not mine]
        found = await asyncio.gather(*(_hear_each_other(mine, ear) for _, ear in others))
        for (other, _), yes in zip(others, found, strict=True):
            self._known.one_account(address, other, yes=yes)
        self._known.looked_for(address)

    async def _wait_for_former(self, address: LinkAddress) -> None:
        former = {one for pair in self._known.pairs if address in pair for one in pair} - {address}
        away = [self._ears[one].link.there() for one in former & self._ears.keys()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BACK_SECONDS):
                await asyncio.gather(*away)


async def _hear_each_other(one: _Ear, other: _Ear) -> bool:
    """Return whether what is said on each of two links is heard on the other."""
    for _ in range(_TIMES):
        if one.link.since is None or other.link.since is None:
            return False
        if all(await asyncio.gather(_is_heard(one, other), _is_heard(other, one))):
            return True
    return False


async def _is_heard(speaker: _Ear, listener: _Ear) -> bool:
    word = secrets.token_bytes(_BYTES)
    heard = listener.expected[word] = asyncio.Event()
    try:
        async with asyncio.timeout(_SECONDS):
            await speaker.link.say(listener.subject, word)
            await heard.wait()
    except (TimeoutError, LinkAwayError):
        return False
    finally:
        del listener.expected[word]
    return True
