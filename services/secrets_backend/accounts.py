"""Which links lead into one account of NATS: those that hear each other, both ways.

In: links. Out: pairs of links that are one account. Called by ``serving``, for each connection. Invariant: only a word
that was said on one link and heard on the other makes two links one, so whoever is in no account of a link gets nothing
of its grant. Why nobody is asked whose account it is: a group of hosts may name a server of its own, which answers
anything, and on a shared one whoever subscribes ``$SYS.REQ.USER.INFO`` is asked, too (nats-server 2.15).
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Final

from secrets_backend.gather import Known
from trellis.lattice.address import LinkAddress
from trellis.lattice.link import INBOX, Link, LinkAwayError

_BYTES: Final = 16
_SECONDS: Final = 0.75
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

        A link that is away stays what it was: it looks for itself when it is there again.
        """
        mine = self._ears[address]
        if mine.link is not link:
            return  # this one ends
        others = [(one, ear) for one, ear in self._ears.items() if ear is not mine and ear.link.since is not None]
        found = await asyncio.gather(*(_hear_each_other(mine, ear) for _, ear in others))
        for (other, _), yes in zip(others, found, strict=True):
            if yes is not None:
                self._known.one_account(address, other, yes=yes)
        self._known.looked_for(address)


async def _hear_each_other(one: _Ear, other: _Ear) -> bool | None:
    """Return whether what is said on each of two links is heard on the other, None if one is away."""
    for _ in range(_TIMES):
        answers = await asyncio.gather(_is_heard(one, other), _is_heard(other, one))
        if None in answers:
            return None
        if all(answers):
            return True
    return False


async def _is_heard(speaker: _Ear, listener: _Ear) -> bool | None:
    word = secrets.token_bytes(_BYTES)
    heard = listener.expected[word] = asyncio.Event()
    try:
        async with asyncio.timeout(_SECONDS):
            await speaker.link.say(listener.subject, word)
            await heard.wait()
    except TimeoutError:
        return False
    except LinkAwayError:
        return None
    finally:
        del listener.expected[word]
    return True
