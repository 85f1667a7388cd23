"""Detects lattice connections to the same NATS account: those that receive each other's messages.

In: connections. Out: groups of connections to one account. Called by ``serving``, for each connection. Invariants: only
a token published on one connection and received on the other joins both, so a client outside the account of a
connection gets nothing of its grant; a token is published to all at once and only its receiver answers, so foreign
servers cost nothing.

The server is not asked for the account: a host group may name its own server, which can answer anything, and on a
shared server any subscriber of ``$SYS.REQ.USER.INFO`` receives the request too (nats-server 2.15).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from secrets_backend.gather import Cache
from secrets_backend.timings import AccountTimings
from trellis.lattice.connection.address import LinkAddress
from trellis.lattice.connection.link import INBOX, Link, LinkAwayError

_BYTES: Final = 16
_TIMES: Final = 2
"""A word may be lost with a connection; who answers none of two does not hear."""


@dataclass(eq=False, slots=True)
class _Ear:
    """Where a link hears. Nobody knows ``subject``, or a word, but who is in an account where it was said."""

    address: LinkAddress
    link: Link
    subject: str = field(default_factory=lambda: f"{INBOX}.{secrets.token_hex(_BYTES)}.account")
    word: bytes = b""
    since: float | None = None
    """The connection that ``word`` is of."""
    heard: dict[_Ear, tuple[float, float]] = field(default_factory=dict)
    """Whose word came here: since when this one's connection is there, and that one's."""
    said: float = 0.0
    """When the word was said to all."""
    answering: set[_Ear] = field(default_factory=set)
    """Who answers already what was said to all."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def hears(self, other: _Ear) -> bool:
        """Return whether the other's word came here, by the connections of now."""
        now = self.link.since, other.link.since
        return None not in now and self.heard.get(other) == now

    def is_one_with(self, other: _Ear) -> bool:
        """Return whether both hear each other."""
        return self.hears(other) and other.hears(self)


class Accounts:
    """Tells ``cache`` which links are one account."""

    def __init__(self, cache: Cache, timings: AccountTimings = AccountTimings()) -> None:  # noqa: B008 - frozen
        self._cache = cache
        self._timings: Final = timings
        self._ears: dict[LinkAddress, _Ear] = {}
        self._words: dict[bytes, _Ear] = {}
        self._all = f"{INBOX}.{secrets.token_hex(_BYTES)}.accounts"
        self._answers: set[asyncio.Task[None]] = set()

    async def join(self, address: LinkAddress, link: Link) -> None:
        """Let a link hear; to be called before it connects."""
        if address in self._ears:
            self._forget(self._ears[address])
        ear = self._ears[address] = _Ear(address, link)
        for subject in (self._all, ear.subject):
            await link.listen(subject, partial(self._hear, ear))

    def leave(self, address: LinkAddress, link: Link) -> None:
        """Forget a link, unless there is a newer one by this address."""
        if address in self._ears and self._ears[address].link is link:
            self._forget(self._ears.pop(address))

    async def look(self, address: LinkAddress, link: Link) -> None:
        """Find out which other links are one account with this one, by the connections of now.

        What was known by a former connection counts no more: the server may be another one, which is told nothing that
        only the former account's groups are granted. A link that is unreachable is waited for a little where it was one
        with this, so that both may come back in any order; it looks for itself when it is there again.
        """
        mine = self._ears[address]
        if mine.link is not link:
            return  # this one ends
        await self._wait_for_former(address)
        until = time.monotonic() + self._timings.look
        for _ in range(_TIMES):
            if await self._say_to_all(mine, until):
                break
        for other in self._cache.of_its_account(address):
            if other not in self._ears or not mine.is_one_with(self._ears[other]):
                self._cache.one_account(address, other, yes=False)
        self._cache.looked_for(address)

    async def _wait_for_former(self, address: LinkAddress) -> None:
        former = self._cache.of_its_account(address)
        away = [self._ears[one].link.there() for one in former & self._ears.keys()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.former):
                await asyncio.gather(*away)

    async def _say_to_all(self, mine: _Ear, until: float) -> bool:
        """Say one's word, and return whether everybody is one by now; False once nobody more answers."""
        mine.answering.clear()
        try:
            if self._all_are_one(mine):
                return True
            await self._say(mine, self._all)
            mine.said = time.monotonic()
            while not self._all_are_one(mine):
                mine.news.clear()
                async with asyncio.timeout(min(self._timings.silence, until - time.monotonic())):
                    await mine.news.wait()
        except (TimeoutError, LinkAwayError):
            return False
        return True

    def _all_are_one(self, mine: _Ear) -> bool:
        """Return whether everybody who is there is one with this."""
        return all(one is mine or one.link.since is None or mine.is_one_with(one) for one in self._ears.values())

    async def _say(self, mine: _Ear, subject: str) -> None:
        """Say the word of the connection of now."""
        if mine.since != mine.link.since:
            self._words.pop(mine.word, None)
            mine.word, mine.since = secrets.token_bytes(_BYTES), mine.link.since
            self._words[mine.word] = mine
        await mine.link.say(subject, mine.word)

    def _hear(self, mine: _Ear, subject: str, word: bytes) -> None:
        """Note who was heard; answer what was said to all, unless one's own word was, since the other is there."""
        other = self._words.get(word)
        if other is None or other is mine or mine.link.since is None or other.since is None:
            return
        mine.heard[other] = mine.link.since, other.since
        if mine.is_one_with(other):
            self._cache.one_account(mine.address, other.address, yes=True)
            mine.news.set()
            other.news.set()
        elif subject == self._all and mine.said < other.since and mine not in other.answering:
            other.answering.add(mine)
            task = asyncio.create_task(self._answer(mine, other), name="answer in an account")
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, mine: _Ear, other: _Ear) -> None:
        with contextlib.suppress(TimeoutError, LinkAwayError):
            async with asyncio.timeout(self._timings.silence):
                await self._say(mine, other.subject)

    def _forget(self, ear: _Ear) -> None:
        self._words.pop(ear.word, None)
        for other in self._ears.values():
            other.heard.pop(ear, None)
