"""`trellis events`: the stream is closed however the command ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest

from trellis.bus.streams.tail import TailedEvent
from trellis_cli.common.messages import EXIT_PIPE_CLOSED
from trellis_cli.events import follow

EVENT = TailedEvent(1, datetime(2026, 1, 2, tzinfo=UTC), "c", "node", "ready", ("n",), {})


class Stream:
    """An endless stream over a connection; ``intact``: whether the connection was intact when the stream was closed."""

    def __init__(self) -> None:
        self.intact: bool | None = None

    async def events(self) -> AsyncGenerator[TailedEvent, None]:
        connection = asyncio.ensure_future(asyncio.Event().wait())
        try:
            while True:
                await asyncio.sleep(0)
                yield EVENT
        finally:
            await asyncio.sleep(0)
            self.intact = not connection.done()
            connection.cancel()


def test_the_stream_is_closed_before_the_command_ends_because_its_reader_has() -> None:
    stream = Stream()

    def ended(_: TailedEvent) -> None:
        raise SystemExit(EXIT_PIPE_CLOSED)

    with pytest.raises(SystemExit) as found:
        asyncio.run(follow(stream.events(), ended))
    assert (found.value.code, stream.intact) == (EXIT_PIPE_CLOSED, True)


def test_an_interrupt_closes_the_stream_and_is_reported() -> None:
    stream = Stream()
    ended = asyncio.run(follow(stream.events(), lambda _: signal.raise_signal(signal.SIGINT)))
    assert (ended, stream.intact) == (False, True)
