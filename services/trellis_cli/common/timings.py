"""Timings of the command line; pure values in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """Times between the reads of ``--watch``."""

    pause: float = 1.0
    """Minimum between the end of a read and the next one."""
    rest: float = 4.0
    """The same, in multiples of the duration of the read: a large cluster is read for at most a fifth of the time."""
    outage: float = 30.0
    """Time without a response of the server until a watch fails."""
