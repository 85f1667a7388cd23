"""Plays a lattice's messages to what reads them, in any order, without a NATS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, cast

from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, MessageHandler
from trellis.lattice.follow.comparison import Comparison
from trellis.lattice.follow.host_watch import HostWatch

LATTICE = "default"


class SilentConnection:
    """A lattice connection without responders: what is known comes from messages alone."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.receiving_since: float | None = None
        self.tried = False
        self.reason = ""
        self._listeners: list[tuple[str, MessageHandler]] = []

    async def there(self) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async def listen(self, subject: str, handler: MessageHandler) -> None:
        """Subscribe to a subject."""
        self._listeners.append((subject, handler))

    async def ignore(self, subject: str, handler: MessageHandler) -> None:
        """Unsubscribe."""
        self._listeners.remove((subject, handler))

    def deliver(self, subject: str, payload: bytes) -> int:
        """Pass a message on, and return to how many."""
        handlers = [
            item for of, item in self._listeners if of == subject or (of[-1] == ">" and subject.startswith(of[:-1]))
        ]
        for item in handlers:
            item(subject, payload)
        return len(handlers)


async def replay(messages: Iterable[dict[str, Any]]) -> tuple[Comparison, HostWatch]:
    """Return what is known after messages as they are recorded."""
    connection = SilentConnection()
    address = LatticeAddress(NatsAddress("nats://nowhere:4222"), LATTICE)
    comparison = Comparison(address, cast("LatticeConnection", connection), lambda _names, _trace: None)
    watch = HostWatch(address, cast("LatticeConnection", connection), lambda: None)
    runs = [asyncio.ensure_future(item.run()) for item in (comparison, watch)]
    await asyncio.sleep(0)
    assert connection.deliver("wadm.evt.default.nothing", b'{"data": {}}') == 1
    assert connection.deliver("wasmbus.evt.default.host_heartbeat", b'{"data": {}}') == 1
    for message in messages:
        data = message["data"]
        connection.deliver(message["subject"], data if isinstance(data, bytes) else json.dumps(data).encode())
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    return comparison, watch
