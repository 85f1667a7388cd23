"""Timings of a run of the installer; tests pass shorter and longer ones.

Pure. Created by ``session``, passed on by ``operations`` and ``fetching``. Values are seconds; the timeouts of the
runtime and of the lock are settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EndingTimings:
    """Timings of the end of processes."""

    term: float = 5.0
    """Time after SIGTERM, before SIGKILL."""
    kill: float = 5.0
    """Time after SIGKILL, before a process counts as one that hangs."""
    poll: float = 0.05
    """Interval of checks whether they ended."""
    cleanup: float = 10.0
    """Timeout of a shim's ``delete`` while the runtime restarts."""
    watch: float = 0.5
    """Interval of checks for a ``delete`` past its timeout."""


@dataclass(frozen=True, slots=True)
class RuntimeTimings:
    """Timings of the container runtime."""

    probe: float = 2.0
    """Timeout of an answer on its socket."""
    poll: float = 0.25
    """Interval of checks whether it runs as required."""
    stop: float = 20.0
    """Timeout for the stop of all sandboxes together."""
    reload: float = 20.0
    """Timeout of the reload by a distribution itself, before a restart (k0s waits 3 s after the last change)."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings of one run."""

    pause: float = 1.0
    """Delay before the second attempt of a download, twice that before the third."""
    lock: float = 0.2
    """Interval of attempts to get the node's lock."""
    ending: EndingTimings = field(default_factory=EndingTimings)
    runtime: RuntimeTimings = field(default_factory=RuntimeTimings)
