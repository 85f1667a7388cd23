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
    """The acknowledgement, called once the work is done; holds the reply subject, not the message."""

    __slots__ = ("__weakref__", "_client", "_done", "_epoch", "_reply", "settled", "token")

    def __init__(self, client: Client, reply: str, epoch: Epoch, sequence: int) -> None:
        self._client = client
        self._reply = reply
        self._epoch = epoch
        self._done = False
        self.settled: Callable[[Hashable], None] | None = None
        """Called with the token once the message is acknowledged."""
        self.token: Final = (epoch.created, epoch.restored, sequence)
        """Identity of the message, the same in each of its deliveries."""

    @property
    def open(self) -> bool:
        """True while the server waits for the acknowledgement."""
        return not self._done and not self._epoch.over

    async def __call__(self) -> None:
        """Acknowledge the message. The server does not confirm it: if it is lost, the message is redelivered."""
        if self.open:
            await self._client.publish(self._reply)
            self._done = True
            if self.settled is not None:
                self.settled(self.token)

    async def in_progress(self) -> None:
        """Report the message as in progress, which restarts its acknowledgement timeout."""
        if self.open:
            await self._client.publish(self._reply, _PROGRESS)

    async def give_back(self) -> None:
        """Return the message to the server for another reader. A later acknowledgement is still accepted.

        Sent only while connected: the server would attribute a late one to the newest delivery.
        """
        if self.open and self._client.is_connected:
            await self._client.publish(self._reply, _GIVEN_BACK)
