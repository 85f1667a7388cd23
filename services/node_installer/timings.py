"""How long a run of the installer waits for what; tests pass shorter times, and longer ones.

Pure. Made by ``session``, passed on by ``operations`` and ``fetching``. Values are seconds; how long the runtime and
other installers are waited for are settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EndingTimings:
    """Of the end of processes."""

    term: float = 5.0
    """After SIGTERM, before SIGKILL."""
    kill: float = 5.0
    """After SIGKILL, before a process counts as one that hangs."""
    poll: float = 0.05
    """Between two looks whether they ended."""
    cleanup: float = 10.0
    """For a shim's ``delete`` while the runtime restarts."""
    watch: float = 0.5
    """Between two looks for those that take longer."""


@dataclass(frozen=True, slots=True)
class RuntimeTimings:
    """Of the container runtime."""

    probe: float = 2.0
    """For an answer on its socket."""
    poll: float = 0.25
    """Between two questions whether it runs as wanted."""
    stop: float = 20.0
    """For the pods of all sandboxes together to be stopped."""
    reload: float = 20.0
    """For a distribution that reloads by itself, before it is told to (k0s waits 3 s after the last change)."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Of one run."""

    pause: float = 1.0
    """Before the second attempt of a download, twice that before the third."""
    lock: float = 0.2
    """Between two attempts to get the node's lock."""
    ending: EndingTimings = field(default_factory=EndingTimings)
    runtime: RuntimeTimings = field(default_factory=RuntimeTimings)
