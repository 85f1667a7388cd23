"""How long the read model waits; tests pass shorter times. Pure. Called by ``audience`` and ``trace_read``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings


def _watch() -> WatchTimings:
    return WatchTimings(watch=(40, 60), absent=30.0, refused=15.0)


@dataclass(frozen=True, slots=True)
class ModelTimings:
    """Seconds."""

    look: float = 0.5
    """Between two looks at what is refused, or not served, while nothing changes."""
    jaeger: float = 30.0
    """One question to Jaeger."""
    watch: WatchTimings = field(default_factory=_watch)
    """The API server asks for rights when a watch begins: who is given one sees what it is about soon, and who lost one
    sees it for a minute longer at most."""
