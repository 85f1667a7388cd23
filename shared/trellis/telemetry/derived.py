"""Trace IDs derived from the cause, so that services that see the same change share a trace.

In: the identity of the change, ``uid/resourceVersion`` of an object. Out: the trace ID, and the ID of its first span.
Called by ``service``. Invariant: the same text gives the same IDs in every process; other IDs stay random. Source: W3C
Trace Context, section 2.2.2 (trace IDs should be random: SHA-256 of unique input is evenly distributed, which ratio
samplers rely on).
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import Final, NamedTuple

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


class Ids(NamedTuple):
    """IDs of a trace and of its first span."""

    trace: int
    span: int


def ids_of(cause: str) -> Ids:
    """Return the IDs derived from a cause; never zero, which would be invalid."""
    digest = hashlib.sha256(f"trellis.dev/{cause}".encode()).digest()
    span = digest[_TRACE_BYTES : _TRACE_BYTES + _SPAN_BYTES]
    return Ids(int.from_bytes(digest[:_TRACE_BYTES]) or 1, int.from_bytes(span) or 1)


FIRST: Final[ContextVar[Ids | None]] = ContextVar("first", default=None)
"""IDs of the first span that starts in this context, None for random IDs."""


class Generator(RandomIdGenerator):
    """Generator of random IDs, except for a span whose IDs ``FIRST`` contains."""

    def generate_span_id(self) -> int:
        """Return the ID of a new span."""
        first = FIRST.get()
        return super().generate_span_id() if first is None else first.span

    def generate_trace_id(self) -> int:
        """Return the ID of a new trace."""
        first = FIRST.get()
        return super().generate_trace_id() if first is None else first.trace
