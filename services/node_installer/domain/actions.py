"""What a plan is made of: each action is one effect, says why, and does nothing where it is done already.

Pure data. Made by ``plan``, done by ``apply``, shown by ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from node_installer.domain.process import Process
from trellis.installer_api.result import ShimResult


class Reason(StrEnum):
    """Why an action is done."""

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
    """Make one directory."""

    path: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class PutShim:
    """Put a fetched shim in its place. ``staged``: where it lies outside of the node; None when only planned."""

    path: str
    handler: str
    staged: Path | None
    reason: Reason
    message: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProbeShim:
    """See that a shim runs on this node at all, before the runtime hears of it."""

    path: str
    handler: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Give a file this content. ``private``: only root may read it, whoever could read the former one."""

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
    """Remove a directory if nothing is in it."""

    path: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class EndProcesses:
    """End what runs one of these programs then: by the runtime, and with ``signals`` whatever it takes.

    ``processes``: those that did when the node was read.
    """

    paths: tuple[str, ...]
    processes: tuple[Process, ...]
    signals: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RestartRuntime:
    """Have the runtime read its configuration, and wait until it runs with it.

    ``present``: ``runtime_type`` of handlers it must have then; ``absent``: handlers it must not have. ``key``: what it
    is to read, by which a restart in vain is known again.
    """

    present: Mapping[str, str]
    absent: frozenset[str]
    reason: Reason
    message: str
    key: str = ""


Action = MakeDirectory | PutShim | ProbeShim | WriteFile | RemoveFile | RemoveDirectory | EndProcesses | RestartRuntime


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in their order; ``last`` come when nothing needs to be undone any more. ``shims``: what is then there."""

    actions: tuple[Action, ...] = ()
    last: tuple[Action, ...] = ()
    shims: tuple[ShimResult, ...] = ()
    warnings: tuple[str, ...] = field(default_factory=tuple)

    @property
    def empty(self) -> bool:
        """Whether all that is wanted holds already."""
        return not self.actions and not self.last
