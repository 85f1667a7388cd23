"""The result of an installer Job: its termination message, one line of JSON. ``spec`` has the input of the Job.

In: the result of a run. Out: a line of at most 4096 bytes, and back. Called by node_installer and by the readers of its
Jobs. Pure, and standard library only (ADR 18). Invariant: a line always contains the outcome and the reason, however
much is cut; a line of another program is parsed as None, never as an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from trellis.installer_api.json_text import read_json

TERMINATION_MESSAGE_BYTES: Final = 4096
"""Maximum size of the termination message of a container; Kubernetes cuts a longer one."""

EXIT_FINAL: Final = 2
"""Exit status of the installer if an immediate retry would fail too; the Job then fails without a retry."""


class Outcome(StrEnum):
    """Outcome of a run."""

    INSTALLED = "Installed"
    REMOVED = "Removed"
    UNCHANGED = "Unchanged"
    VERIFIED = "Verified"
    PLANNED = "Planned"
    INSPECTED = "Inspected"
    FAILED = "Failed"
    ROLLED_BACK = "RolledBack"


class FailureReason(StrEnum):
    """Reason of a failed run, as in conditions."""

    INVALID_SPEC = "InvalidSpec"
    UNSUPPORTED_NODE = "UnsupportedNode"
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    CONFIG_UNREADABLE = "ConfigUnreadable"
    STATE_UNREADABLE = "StateUnreadable"
    HANDLER_CONFLICT = "HandlerConflict"
    SHIMS_IN_USE = "ShimsInUse"
    LOCKED = "Locked"
    NO_SOURCE = "NoSourceForPlatform"
    DOWNLOAD_FAILED = "DownloadFailed"
    INSECURE_SOURCE = "InsecureSource"
    CHECKSUM_MISSING = "ChecksumMissing"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    UNSAFE_ARCHIVE = "UnsafeArchive"
    SHIM_NOT_IN_ARCHIVE = "ShimNotInArchive"
    WRONG_ARCHITECTURE = "WrongArchitecture"
    NO_SPACE = "NoSpace"
    READ_ONLY_TARGET = "ReadOnlyTarget"
    DISK_ERROR = "DiskError"
    SHIM_NOT_EXECUTABLE = "ShimNotExecutable"
    RESTART_FAILED = "RestartFailed"
    RUNTIME_START_FAILED = "RuntimeStartFailed"
    INTERRUPTED = "Interrupted"
    VERIFICATION_FAILED = "VerificationFailed"
    REFUSED_BEFORE = "RefusedBefore"


PERMANENT: Final = frozenset(
    {
        FailureReason.INVALID_SPEC,
        FailureReason.UNSUPPORTED_NODE,
        FailureReason.NO_SOURCE,
        FailureReason.INSECURE_SOURCE,
        FailureReason.CHECKSUM_MISSING,
        FailureReason.CHECKSUM_MISMATCH,
        FailureReason.UNSAFE_ARCHIVE,
        FailureReason.SHIM_NOT_IN_ARCHIVE,
        FailureReason.WRONG_ARCHITECTURE,
        FailureReason.REFUSED_BEFORE,
    }
)
"""Reasons for which a retry with the same specification fails too."""


@dataclass(frozen=True, slots=True)
class ShimResult:
    """State of one shim at the end of a run."""

    handler: str
    digest: str = ""
    sha256: str = ""
    version: str = ""
    verified: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A process of a shim that was ended by a forced removal. ``killed``: by SIGKILL, because SIGTERM had no effect."""

    pid: int
    name: str = ""
    killed: bool = False


@dataclass(frozen=True, slots=True)
class InstallResult:
    """Result of one run. ``restarted``: the container runtime was restarted, which can disturb its pods."""

    operation: str
    outcome: Outcome
    reason: FailureReason | None = None
    message: str = ""
    preset: str = ""
    restarted: bool = False
    seconds: float = 0.0
    shims: tuple[ShimResult, ...] = ()
    warnings: tuple[str, ...] = ()
    ended: tuple[EndedProcess, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the node is in the requested state."""
        return self.outcome not in (Outcome.FAILED, Outcome.ROLLED_BACK)

    @property
    def is_final(self) -> bool:
        """True if an immediate retry would fail too, or disturb the pods of the node without effect.

        The installer then exits with :data:`EXIT_FINAL`, otherwise with 1. A rollback after a restart is final, so that
        a Job restarts the runtime only once; an interrupted rollback is not final.
        """
        rolled_back = self.outcome is Outcome.ROLLED_BACK and self.reason is not FailureReason.INTERRUPTED
        return not self.ok and (rolled_back or self.reason in PERMANENT)

    def to_line(self, limit: int = TERMINATION_MESSAGE_BYTES) -> str:
        """Return one line of JSON of at most ``limit`` bytes: cuts texts, then omits lists, but never the reason."""
        value = {key: item for key, item in asdict(self).items() if item not in (None, "", (), False)}
        value["seconds"] = round(self.seconds, 3)
        for cut in (None, 1000, 300, 80):
            if len(line := _line(value, cut).encode()) <= limit:
                return line.decode()
        for key in ("ended", "shims", "warnings"):
            value.pop(key, None)
            if len(line := _line(value, 80).encode()) <= limit:
                return line.decode()
        return _line(value, 80)


_T = TypeVar("_T", ShimResult, EndedProcess)
_V = TypeVar("_V")
_TYPES: Final[Mapping[str, type]] = {"str": str, "bool": bool, "int": int}


def parse_result(line: str) -> InstallResult | None:
    """Parse a termination message; return None if it is not from Trellis (a legacy image, or log lines)."""
    try:
        value = read_json(line)
        reason = value.get("reason")
        return InstallResult(
            operation=_of(str, value["operation"]),
            outcome=Outcome(value["outcome"]),
            reason=FailureReason(reason) if reason else None,
            message=_of(str, value.get("message", "")),
            preset=_of(str, value.get("preset", "")),
            restarted=_of(bool, value.get("restarted", False)),
            seconds=float(value.get("seconds", 0.0)),
            shims=tuple(_known(ShimResult, shim) for shim in _of(list, value.get("shims", []))),
            warnings=tuple(_of(str, warning) for warning in _of(list, value.get("warnings", []))),
            ended=tuple(_known(EndedProcess, process) for process in _of(list, value.get("ended", []))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _known(kind: type[_T], value: Mapping[str, Any]) -> _T:
    fields = kind.__dataclass_fields__
    return kind(**{key: _of(_TYPES[str(fields[key].type)], item) for key, item in value.items() if key in fields})


def _of(kind: type[_V], value: object) -> _V:
    """Return a value of the required type; raises TypeError."""
    if type(value) is not kind:
        raise TypeError
    return value


def _line(value: Mapping[str, Any], cut: int | None) -> str:
    return json.dumps(_shortened(value, cut), separators=(",", ":"), ensure_ascii=False)


def _shortened(value: object, cut: int | None) -> object:
    match value:
        case str():
            # A path that is not UTF-8 is text with lone surrogates, which cannot be encoded.
            text = " ".join(value.encode(errors="backslashreplace").decode().split())
            return text if cut is None or len(text) <= cut else text[: cut - 1] + "…"
        case Mapping():
            return {key: _shortened(item, cut) for key, item in value.items() if item not in ("", False)}
        case list() | tuple():
            return [_shortened(item, cut) for item in value]
        case _:
            return value
