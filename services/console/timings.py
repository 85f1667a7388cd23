"""How long the console waits for what, and keeps what; tests pass shorter times. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings
from trellis.read_model.live.watching import viewer_timings


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. Why those that viewers notice have these values: ADR 82."""

    body: float = 10.0
    """For the body of a request to come; a token is sent at once."""
    idle: float = 1800.0
    """After so long without a request a session ends."""
    stream: float = 600.0
    """A stream ends after so long, and the page opens a new one: a lost session, or a lost proxy, is noticed."""
    heartbeat: float = 15.0
    """After so long without a message a stream sends a comment, and notices a page that is gone."""
    slow: float = 10.0
    """A page that takes nothing for so long is cut off."""
    coalesce: float = 0.1
    """For so long changes are collected before they are shown together."""
    linger: float = 20.0
    """For so long watches of a viewer go on after the last tab: a reload finds them."""
    sweep: float = 1.0
    """Between two looks for visits and watches that are to end."""
    recheck: float = 60.0
    """Between two questions to the API server whether it still knows a viewer."""
    rights: float = 10.0
    """For so long an answer about a right of a viewer is believed."""
    review: float = 5.0
    """For an answer about a right to come."""
    replay: float = 8.0
    """For one page of past events to be read; what is read by then is shown."""
    probe: float = 10.0
    """Between two probes of the API server."""
    restart: float = 1.0
    """A part that failed is started again after so long."""
    bus_first: float = 0.5
    """The first wait of the backoff with which the bus is dialled again."""
    bus_most: float = 10.0
    """The longest wait of that backoff."""
    keepalive: float = 75.0
    """A connection without a request is closed after so long."""
    shutdown: float = 2.0
    """For handlers to end once the port is closed."""
    traces: float = 5.0
    """How long sending the last spans may take."""
    watch: WatchTimings = field(default_factory=viewer_timings)
    """Of the watches that are made as a viewer."""
