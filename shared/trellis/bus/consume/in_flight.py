"""Tracks the messages that a reader holds, and their failed deliveries.

In: acknowledgements handed over, dropped or sent. Out: messages in progress, and the failures of each message. Called
by ``subscriber``. No IO. Invariant: only failures caused by a message count against it: deliveries that this process
dropped, and one per crash of consecutive earlier readers. A held message is in progress however often it is
redelivered; a message that was returned in order or lost is not a failure. The delivery count of the server does not
distinguish these cases.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator
from functools import partial
from typing import Final

from trellis.bus.consume.ack import Ack

MAX_DELIVERIES: Final = 5
"""A message that was delivered so often without a result is dead-lettered."""


class Holding:
    """The open messages of one subscription. ``crashes`` is how many readers before it ended without a word."""

    def __init__(self) -> None:
        self.crashes = 0
        # Weak: what nobody holds any more is nobody's work, and is to come again.
        self._held: dict[Hashable, weakref.ref[Ack]] = {}
        self._dropped: dict[Hashable, int] = {}

    def __iter__(self) -> Iterator[Ack]:
        """Yield the acknowledgements the server still waits for."""
        for reference in list(self._held.values()):
            if (ack := reference()) is not None and ack.open:
                yield ack

    def take(self, ack: Ack) -> None:
        """Count a message as in progress for as long as somebody has its acknowledgement.

        The newest delivery's counts.
        """
        self._held[ack.token] = weakref.ref(ack, partial(self._release, ack.token))
        ack.settled = self.forget

    def drop(self, token: Hashable) -> None:
        """Count a delivery that nobody will see to."""
        self._dropped[token] = self._dropped.get(token, 0) + 1

    def forget(self, token: Hashable) -> None:
        """Forget a message that is done, or dead-lettered."""
        self._held.pop(token, None)
        self._dropped.pop(token, None)

    def release(self) -> None:
        """Hold nothing any more: whoever consumes next is to get it, though its acknowledgement still exists here."""
        self._held.clear()

    def hopeless(self, token: Hashable, deliveries: int) -> bool:
        """Return whether a message is to be dead-lettered that is delivered now, the server says for how many times."""
        if (held := self._held.get(token)) is not None and held() is not None:
            return False
        dropped = self._dropped.get(token, 0)
        unseen = max(0, deliveries - 1 - dropped)
        return dropped + min(unseen, self.crashes) >= MAX_DELIVERIES

    def _release(self, token: Hashable, reference: weakref.ref[Ack]) -> None:
        # A newer delivery may have taken its place: then the message is in progress.
        if self._held.get(token) is reference:
            del self._held[token]
            self.drop(token)
