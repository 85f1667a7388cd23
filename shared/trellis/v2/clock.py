"""Difference between the clocks of the runtime-operator and the API server.

Pure. In: Hosts. Out: seconds. Called by ``cluster``. Invariant: nothing is concluded from a difference that other times
contradict. Source: the API server writes the creation of an object; the runtime-operator writes all times in its
status, sets the first conditions of a Host within a second of its creation, and deletes Hosts without heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence

from trellis.v2.hosts import HostView
from trellis.v2.timings import V2Timings


def operator_lead(hosts: Sequence[HostView], now: float, timings: V2Timings) -> float:
    """Return how far the clock of the operator is ahead in seconds, negative if it is behind, 0 without evidence.

    ``now``: Unix seconds by the clock of the API server.
    """
    times = [host.last_seen for host in hosts if host.last_seen is not None]
    if not times:
        return 0.0
    newest = max(times)
    if newest - now > timings.slack:
        # One clock wrote them all, and no Host is so much older than another one.
        return newest - now if newest - min(times) <= timings.expired else 0.0
    behind = max((_before_creation(host) for host in hosts), default=0.0)
    # No heartbeat is recorded in the future: an object that was restored from a backup has older conditions, too.
    return -behind if timings.slack < behind <= now - newest + timings.slack else 0.0


def _before_creation(host: HostView) -> float:
    """Return the seconds between the first known change of a condition and the later creation of its Host."""
    times = [found.since for found in host.conditions.values() if found.since is not None]
    if host.meta.created is None or not times:
        return 0.0
    return host.meta.created - min(times)
