"""The clock of the runtime-operator, by which the last heartbeats of Hosts are recorded.

Pure, except for the state of ``OperatorClock``. In: recorded heartbeats, at the moment of their arrival. Out: Hosts
whose last heartbeat is by the clock of the API server. Called by ``host_manager.v2``. Invariant: a difference between
the clocks is neither the silence of hosts nor an outage of the operator. Source: ADR 94 for the clock of the API
server; the operator sets ``status.lastSeen`` to its own time when a heartbeat arrives.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from trellis.v2.hosts import HostView

_SAMPLES: Final = 8
"""Heartbeats that are compared. A list after an interruption delivers some late, so the smallest difference counts."""


class OperatorClock:
    """The difference of the clocks; 0 until a heartbeat is recorded, and up to ``slack`` seconds."""

    def __init__(self, slack: float) -> None:
        self._slack = slack
        self._differences: deque[float] = deque(maxlen=_SAMPLES)

    def note(self, former: HostView | None, host: HostView | None, now: float) -> None:
        """Note a change of a Host that arrives at ``now``, in Unix seconds by the clock of the API server.

        Only a heartbeat between two states is compared: the one of a first list can be old.
        """
        if former is None or host is None or former.last_seen is None or host.last_seen is None:
            return
        if host.last_seen > former.last_seen:
            self._differences.append(now - host.last_seen)

    @property
    def difference(self) -> float:
        """Seconds by which the clock of the API server is ahead of that of the operator."""
        found = min(self._differences, default=0.0)
        return found if abs(found) > self._slack else 0.0

    def adjusted(self, host: HostView) -> HostView:
        """Return a Host whose last heartbeat is by the clock of the API server."""
        difference = self.difference
        if not difference or host.last_seen is None:
            return host
        return replace(host, last_seen=host.last_seen + difference)
