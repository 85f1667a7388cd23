"""Ids of a trace that follow from its cause, so that services which see the same change are in one trace unasked.

In: what names the change, ``uid/resourceVersion`` of an object. Out: ids of its trace, and of the first span there.
Called by ``service``. Invariant: the same text gives the same ids in every process; other ids stay random.
Source: W3C Trace Context, section 2.2.2 (a trace id should be random: SHA-256 of what never repeats is spread evenly,
which samplers by ratio rely on).
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import Final, NamedTuple

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


class Ids(NamedTuple):
    """Of a trace, and of its first span."""

    trace: int
    span: int


def ids_of(cause: str) -> Ids:
    """Return the ids that follow from a cause. None is zero, which would be invalid."""
    digest = hashlib.sha256(f"trellis.dev/{cause}".encode()).digest()
    span = digest[_TRACE_BYTES : _TRACE_BYTES + _SPAN_BYTES]
    return Ids(int.from_bytes(digest[:_TRACE_BYTES]) or 1, int.from_bytes(span) or 1)


FIRST: Final[ContextVar[Ids | None]] = ContextVar("first", default=None)
"""Ids of the first span that is being started in this context, None for random ones."""


class Generator(RandomIdGenerator):
    """Random ids, but for a span that is given its own by ``FIRST``."""

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        first = FIRST.get()
        return super().generate_span_id() if first is None else first.span

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        first = FIRST.get()
        return super().generate_trace_id() if first is None else first.trace
