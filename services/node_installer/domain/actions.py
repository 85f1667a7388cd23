"""The actions of a plan: each has one effect and a reason, and does nothing if that is done already.

Pure data. Created by ``plan``, executed by ``apply``, shown by ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from node_installer.domain.process import Process
from trellis.installer_api.result import ShimResult


class Reason(StrEnum):
    """Reason of an action."""

    DIRECTORY_MISSING = "DirectoryMissing"
    STATE_CHANGED = "StateChanged"
    SHIM_MISSING = "ShimMissing"
    SHIM_OUTDATED = "ShimOutdated"
    SHIM_DAMAGED = "ShimDamaged"
    VERIFICATION_PENDING = "VerificationPending"
    SHIM_UNWANTED = "ShimUnwanted"
    SHIM_IN_USE = "ShimInUse"
    HANDLER_MISSING = "HandlerMissing"
    HANDLER_DIFFERS = "HandlerDiffers"
    HANDLER_UNWANTED = "HandlerUnwanted"
    ADOPTED = "Adopted"
    CONFIG_CHANGED = "ConfigChanged"
    RUNTIME_OUTDATED = "RuntimeOutdated"
    RUN_INTERRUPTED = "RunInterrupted"
    NOTHING_LEFT = "NothingLeft"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Create one directory."""

    path: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class PutShim:
    """Install a downloaded shim. ``staged``: its path outside of the node; None in a dry run."""

    path: str
    handler: str
    staged: Path | None
    reason: Reason
    message: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProbeShim:
    """Test that a shim runs on this node, before it is added to the runtime."""

    path: str
    handler: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file. ``private``: only root may read it, even if the former one was readable for more users."""

    path: str
    content: bytes
    reason: Reason
    message: str
    private: bool = False


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Remove a file."""

    path: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RemoveDirectory:
    """Remove a directory if it is empty."""

    path: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class EndProcesses:
    """End the processes of these programs: by the runtime, and with ``signals`` also by SIGTERM and SIGKILL.

    ``processes``: those at the time when the node was read.
    """

    paths: tuple[str, ...]
    processes: tuple[Process, ...]
    signals: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RestartRuntime:
    """Restart the runtime, and wait until it runs with its new configuration.

    ``present``: ``runtime_type`` of handlers it must have then; ``absent``: handlers it must not have. ``key``: digest
    of the configuration, which identifies a failed restart.
    """

    present: Mapping[str, str]
    absent: frozenset[str]
    reason: Reason
    message: str
    key: str = ""


Action = MakeDirectory | PutShim | ProbeShim | WriteFile | RemoveFile | RemoveDirectory | EndProcesses | RestartRuntime


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order; ``last``: after the last possible rollback. ``shims``: the resulting shims."""

    actions: tuple[Action, ...] = ()
    last: tuple[Action, ...] = ()
    shims: tuple[ShimResult, ...] = ()
    warnings: tuple[str, ...] = field(default_factory=tuple)

    @property
    def empty(self) -> bool:
        """True if the node already has the target state."""
        return not self.actions and not self.last
