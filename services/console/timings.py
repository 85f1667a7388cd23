"""Timeouts, intervals and TTLs of the console; tests use shorter ones. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings
from trellis.read_model.live.watching import viewer_timings


@dataclass(frozen=True, slots=True)
class Timings:
    """In seconds. ADR 82 has the reasons for the values that viewers notice."""

    body: float = 10.0
    """Timeout for the body of a request; a token is sent at once."""
    idle: float = 1800.0
    """Idle timeout of a session."""
    stream: float = 600.0
    """Maximum duration of a stream; the page opens a new one, which detects a lost session or proxy."""
    heartbeat: float = 15.0
    """Silence after which a stream sends a comment, which detects a closed page."""
    slow: float = 10.0
    """Write timeout, after which a slow page is disconnected."""
    coalesce: float = 0.1
    """Period in which changes are collected into one message."""
    linger: float = 20.0
    """Period for which a viewer's watches remain after the last tab closes: a page reload uses them."""
    sweep: float = 1.0
    """Interval of the checks for visits and watches to end."""
    recheck: float = 60.0
    """Interval of the checks that the API server still accepts a viewer."""
    permissions: float = 10.0
    """Cache TTL of a viewer's permission."""
    review: float = 5.0
    """Timeout of an access review."""
    replay: float = 8.0
    """Time limit for one page of past events; the page shows the events read by then."""
    probe: float = 10.0
    """Interval of the probes of the API server."""
    restart: float = 1.0
    """Delay before a failed component is restarted."""
    bus_first: float = 0.5
    """First delay of the backoff between connection attempts to the bus."""
    bus_most: float = 10.0
    """Maximum of that delay."""
    keepalive: float = 75.0
    """Idle timeout of a connection."""
    shutdown: float = 2.0
    """Timeout for request handlers after the port is closed."""
    traces: float = 5.0
    """Timeout for the export of the last spans."""
    watch: WatchTimings = field(default_factory=viewer_timings)
    """Timings of the watches with a viewer's identity."""
