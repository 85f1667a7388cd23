"""The body of an outgoing request: checks the guard before its first byte, and is sent in parts.

In: bytes and a guard. Out: the chunks that the HTTP library writes. Called by ``trellis.kube.transport``. Between the
start of a write and its first byte, the client waits for a free connection and a TLS handshake. A process that is
stopped there for longer than its Lease lasts would otherwise send a write that its successor does not expect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

_PART: Final = 2**18
"""Bytes per write, which limits how long the event loop is blocked."""


class Body(Payload):
    """Encoded bytes. ``refusal``: the exception of ``check``; then neither headers nor body were sent."""

    def __init__(self, value: bytes, content_type: str, check: Callable[[], None] | None = None) -> None:
        super().__init__(value, content_type=content_type)
        self._size = len(value)
        self._check = check
        self.refusal: Exception | None = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        value: bytes = self._value
        return value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Call ``check``, then write the whole body; a retry on another connection can repeat this."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Call ``check``, then write at most ``content_length`` bytes; raises the exception of ``check``."""
        if self._check is not None:
            try:
                self._check()
            except Exception as refusal:
                self.refusal = refusal
                raise
        value: Any = memoryview(self._value)[:content_length]
        for start in range(0, len(value), _PART):
            await writer.write(value[start : start + _PART])
