"""The acknowledgement of one delivered message.

Created by the subscriber, sent by the keyed queue after the run that covered the message. Invariant: an acknowledgement
for a deleted stream has no effect: in a re-created stream the same sequence number is another message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from nats.aio.client import Client

from trellis.bus.streams.streams import Epoch

_PROGRESS: Final = b"+WPI"
_GIVEN_BACK: Final = b"-NAK"


class Ack:
    """Call it once the work is done. It holds the reply subject, not the message."""

    __slots__ = ("__weakref__", "_client", "_done", "_epoch", "_reply", "settled", "token")

    def __init__(self, client: Client, reply: str, epoch: Epoch, sequence: int) -> None:
        self._client = client
        self._reply = reply
        self._epoch = epoch
        self._done = False
        self.settled: Callable[[Hashable], None] | None = None
        """Told the token once the message is done."""
        self.token: Final = (epoch.created, epoch.restored, sequence)
        """Identity of the message, the same in each of its deliveries."""

    @property
    def open(self) -> bool:
        """Whether the server still waits for it."""
        return not self._done and not self._epoch.over

    async def __call__(self) -> None:
        """Say that the message is done. Not confirmed by the server: if it gets lost, the message comes again."""
        if self.open:
            await self._client.publish(self._reply)
            self._done = True
            if self.settled is not None:
                self.settled(self.token)

    async def in_progress(self) -> None:
        """Say that the message is still worked on: the time until its redelivery restarts."""
        if self.open:
            await self._client.publish(self._reply, _PROGRESS)

    async def give_back(self) -> None:
        """Say that another writer is to have the message now. Work that ends well after all may still say so: it
        counts.

        Only over the connection it came by: the server would take one that comes late for the newest delivery's.
        """
        if self.open and self._client.is_connected:
            await self._client.publish(self._reply, _GIVEN_BACK)
