"""The records of this program on a node: its state, and the journal of an unfinished run.

Pure: JSON in and out. Called by ``gather`` (reads), ``plan`` (the target state) and ``apply`` (the journal).
Invariants: the state is written before the files that it describes and removed after them, so no file of Trellis is
ever unrecorded; a file of a newer version, or a damaged one, is rejected.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from node_installer.domain.actions import Reason, WriteFile
from node_installer.domain.errors import InstallError
from trellis.installer_api.json_text import read_json
from trellis.installer_api.result import FailureReason

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ShimState:
    """One installed shim. ``owners``: it is removed with the last of them. ``adopted``: its former installer."""

    name: str
    path: str
    sha256: str
    digest: str
    owners: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    adopted: str = ""


@dataclass(frozen=True, slots=True)
class ConfigState:
    """One written configuration file: its content without Trellis (None: it did not exist), and the written digest."""

    original: bytes | None
    written_sha256: str


@dataclass(frozen=True, slots=True)
class State:
    """State of Trellis on a node. ``directories``: created, outermost first. ``retired``: former binaries in use."""

    shims: Mapping[str, ShimState] = field(default_factory=dict)
    configs: Mapping[str, ConfigState] = field(default_factory=dict)
    directories: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True if nothing of Trellis is recorded."""
        return self == State()

    def to_bytes(self) -> bytes:
        """Return the state file's content."""
        value = {
            "version": VERSION,
            "shims": {handler: _shim_json(shim) for handler, shim in sorted(self.shims.items())},
            "configs": {
                path: {
                    "original": None if config.original is None else base64.b64encode(config.original).decode(),
                    "written_sha256": config.written_sha256,
                }
                for path, config in sorted(self.configs.items())
            },
            "directories": list(self.directories),
            "retired": list(self.retired),
        }
        return (json.dumps(value, indent=1) + "\n").encode()


class Phase(StrEnum):
    """Phase of a run when its journal was last written."""

    APPLYING = "applying"
    RESTARTING = "restarting"
    ROLLING_BACK = "rolling-back"


@dataclass(frozen=True, slots=True)
class Journal:
    """Record by which the next run rolls back or finishes a run.

    ``restart``: it includes a restart. ``visible``: the runtime reported beforehand that a handler was missing, so that
    its report shows afterwards whether it was restarted. ``backups``: each changed file, and the name of its backup.
    """

    operation: str
    phase: Phase
    restart: bool
    visible: bool = False
    backups: Mapping[str, str] = field(default_factory=dict)
    directories: tuple[str, ...] = ()
    cause: str = ""

    def at(self, phase: Phase, cause: str = "") -> Journal:
        """Return the journal in a later phase."""
        return replace(self, phase=phase, cause=cause or self.cause)

    def to_bytes(self) -> bytes:
        """Return the journal file's content."""
        value = {
            "version": VERSION,
            "operation": self.operation,
            "phase": self.phase.value,
            "restart": self.restart,
            "visible": self.visible,
            "backups": dict(self.backups),
            "directories": list(self.directories),
            "cause": self.cause,
        }
        return (json.dumps(value, indent=1) + "\n").encode()


def write_state(path: str, state: State, message: str) -> WriteFile:
    """Return the action that writes a state; it contains former configurations, which may contain credentials."""
    return WriteFile(path, state.to_bytes(), Reason.STATE_CHANGED, message, private=True)


def parse_state(content: bytes | None, path: str) -> State:
    """Return the state in a file; an absent file is the empty state.

    Raises:
        InstallError: ``StateUnreadable``.
    """
    if content is None:
        return State()
    try:
        value = _versioned(content)
        return State(
            shims={handler: _shim_state(item) for handler, item in value["shims"].items()},
            configs={
                file: ConfigState(
                    None if item["original"] is None else base64.b64decode(item["original"], validate=True),
                    _text(item["written_sha256"]),
                )
                for file, item in value["configs"].items()
            },
            directories=_texts(value["directories"]),
            retired=_texts(value["retired"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error


def parse_journal(content: bytes | None, path: str) -> Journal | None:
    """Return the journal in a file, None if it does not exist.

    Raises:
        InstallError: ``StateUnreadable``.
    """
    if content is None:
        return None
    try:
        value = _versioned(content)
        return Journal(
            operation=_text(value["operation"]),
            phase=Phase(value["phase"]),
            restart=_flag(value["restart"]),
            visible=_flag(value["visible"]),
            backups=_text_values(value["backups"]),
            directories=_texts(value["directories"]),
            cause=_text(value["cause"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error


def _versioned(content: bytes) -> Any:  # noqa: ANN401 (JSON)
    value = read_json(content)
    if value["version"] != VERSION:
        message = f"it has version {value['version']!r}, and this installer supports version {VERSION}"
        raise ValueError(message)
    return value


def _unreadable(path: str, error: Exception) -> InstallError:
    detail = f"missing or malformed {error}" if isinstance(error, KeyError) else str(error)
    message = f"{path} cannot be read ({detail}): use the installer that wrote it, or correct it manually"
    return InstallError(FailureReason.STATE_UNREADABLE, message)


def _shim_state(item: Mapping[str, Any]) -> ShimState:
    return ShimState(
        name=_text(item["name"]),
        path=_text(item["path"]),
        sha256=_text(item["sha256"]),
        digest=_text(item["digest"]),
        owners=_texts(item["owners"]),
        options=_text_values(item["options"]),
        adopted=_text(item["adopted"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        message = f"expected a string, not {type(value).__name__}"
        raise TypeError(message)
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        message = f"expected a boolean, not {type(value).__name__}"
        raise TypeError(message)
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        message = f"expected a list, not {type(value).__name__}"
        raise TypeError(message)
    return tuple(map(_text, value))


def _text_values(value: Mapping[str, object]) -> dict[str, str]:
    return {key: _text(item) for key, item in value.items()}


def _shim_json(shim: ShimState) -> dict[str, Any]:
    return {
        "name": shim.name,
        "path": shim.path,
        "sha256": shim.sha256,
        "digest": shim.digest,
        "owners": list(shim.owners),
        "options": dict(shim.options),
        "adopted": shim.adopted,
    }
