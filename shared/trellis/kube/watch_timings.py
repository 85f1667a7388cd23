"""Timings of informers; tests use shorter ones. Called by ``informer``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """Seconds. ``watch``: range of the duration of a watch; servers send bookmarks about every 60 s."""

    relist: float = 600.0
    watch: tuple[int, int] = (240, 300)
    idle: float = 90.0
    backoff_first: float = 0.2
    backoff_most: float = 10.0
    stalled_after: float = 60.0
    """Time of successful other calls after which a watch without progress counts as stalled."""
    probe: float = 10.0
    """Time without calls of this process after which the API server is probed."""
    absent: float = 10.0
    """Retry interval for a kind that is not served."""
    refused: float = 60.0
    """Retry interval for a kind that the account lacks permission to read."""
    lived: float = 5.0
    """Minimum duration of a successful watch, even without events."""
    early: float = 1.0
    """A watch that ends more than this before its timeout ended early."""
