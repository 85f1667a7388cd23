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
"""Number of failed deliveries after which a message is dead-lettered."""


class InFlight:
    """The open messages of one subscription. ``crashes`` is the number of consecutive earlier readers that crashed."""

    def __init__(self) -> None:
        self.crashes = 0
        # Weak: a message whose acknowledgement was dropped is no longer in progress, and is redelivered.
        self._held: dict[Hashable, weakref.ref[Ack]] = {}
        self._dropped: dict[Hashable, int] = {}

    def __iter__(self) -> Iterator[Ack]:
        """Yield the acknowledgements that the server waits for."""
        for reference in list(self._held.values()):
            if (ack := reference()) is not None and ack.open:
                yield ack

    def take(self, ack: Ack) -> None:
        """Count a message as in progress while the acknowledgement of its newest delivery is referenced."""
        self._held[ack.token] = weakref.ref(ack, partial(self._release, ack.token))
        ack.settled = self.forget

    def drop(self, token: Hashable) -> None:
        """Count a delivery that was dropped without a result."""
        self._dropped[token] = self._dropped.get(token, 0) + 1

    def forget(self, token: Hashable) -> None:
        """Remove a message that is acknowledged or dead-lettered."""
        self._held.pop(token, None)
        self._dropped.pop(token, None)

    def release(self) -> None:
        """Release all messages for the next reader, although their acknowledgements still exist here."""
        self._held.clear()

    def hopeless(self, token: Hashable, deliveries: int) -> bool:
        """Return True if a message must be dead-lettered; ``deliveries`` is the server's count with the current one."""
        if (reference := self._held.get(token)) is not None and reference() is not None:
            return False
        dropped = self._dropped.get(token, 0)
        unseen = max(0, deliveries - 1 - dropped)
        return dropped + min(unseen, self.crashes) >= MAX_DELIVERIES

    def _release(self, token: Hashable, reference: weakref.ref[Ack]) -> None:
        # A newer delivery may have replaced it: then the message is in progress.
        if self._held.get(token) is reference:
            del self._held[token]
            self.drop(token)
