"""Timeouts of fetches in seconds; tests pass shorter ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchTimings:
    """Seconds of fetches from registries and addresses."""

    connect: float = 10.0
    """Timeout of a TCP connection."""
    patience: float = 20.0
    """Base timeout of a fetch; one second is added for each ``transfers.LEAST_SPEED`` bytes received."""
    most: float = 120.0
    """Maximum timeout of a fetch, without the wait for memory."""
