"""How long an informer waits for what; tests bring shorter times. Called by ``informer``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """Seconds. ``watch`` is the range of a watch's length; servers send bookmarks every 60 s or so."""

    relist: float = 600.0
    watch: tuple[int, int] = (240, 300)
    idle: float = 90.0
    backoff_first: float = 0.2
    backoff_most: float = 10.0
    deaf: float = 60.0
    """How long the API server must have answered others before a watch without progress counts as deaf."""
    probe: float = 10.0
    """After how long without any call of this process the API server is asked whether it is there."""
    absent: float = 10.0
    """Between two looks for a kind that is not defined."""
    refused: float = 60.0
    """Between two tries of what the account may not read."""
    lived: float = 5.0
    """A watch that lasted this long was a success, even if nothing happened."""
    early: float = 1.0
    """A watch that ends so long before its time did not end because of it."""
