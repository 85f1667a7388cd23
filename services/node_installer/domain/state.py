"""What this program wrote onto a node: its state, and the journal of a run that is not over.

Pure: JSON in and out. Called by ``gather`` (reads), ``plan`` (what it should become) and ``apply`` (the journal).
Invariants: the state is written before what it describes and removed after it, so nothing of Trellis is ever unknown; a
file of a newer version, or one that someone broke, is refused and never guessed at.
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
    """One installed shim. ``owners``: who wants it; it goes with the last of them. ``adopted``: whose it was before."""

    name: str
    path: str
    sha256: str
    digest: str
    owners: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    adopted: str = ""


@dataclass(frozen=True, slots=True)
class ConfigState:
    """One configuration file we wrote: what it was without us (None: it did not exist), and the digest of Trellis."""

    original: bytes | None
    written_sha256: str


@dataclass(frozen=True, slots=True)
class State:
    """All of Trellis on a node. ``directories``: made by us, outermost first. ``retired``: former binaries in use."""

    shims: Mapping[str, ShimState] = field(default_factory=dict)
    configs: Mapping[str, ConfigState] = field(default_factory=dict)
    directories: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing of Trellis is known."""
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
    """How far a run was when its journal was last written."""

    APPLYING = "applying"
    RESTARTING = "restarting"
    ROLLING_BACK = "rolling-back"


@dataclass(frozen=True, slots=True)
class Journal:
    """What a run needs to be undone or finished by the next.

    ``restart``: it has one to do. ``visible``: the runtime told beforehand that it lacked something, so that it can
    tell afterwards whether it was restarted. ``backups``: each file it touches, and the name under which the former one
    is kept.
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
    """Return the action that writes a state: it holds former configurations, and those may hold credentials."""
    return WriteFile(path, state.to_bytes(), Reason.STATE_CHANGED, message, private=True)


def parse_state(content: bytes | None, path: str) -> State:
    """Read a state file; an absent one is the empty state.

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
    """Read a journal; None if there is none.

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
            backups=_words(value["backups"]),
            directories=_texts(value["directories"]),
            cause=_text(value["cause"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error


def _versioned(content: bytes) -> Any:  # noqa: ANN401 (JSON)
    value = read_json(content)
    if value["version"] != VERSION:
        message = f"it has version {value['version']!r}, and this installer knows version {VERSION}"
        raise ValueError(message)
    return value


def _unreadable(path: str, error: Exception) -> InstallError:
    detail = f"missing or malformed {error}" if isinstance(error, KeyError) else str(error)
    message = f"{path} cannot be read ({detail}): use the installer that wrote it, or mend it by hand"
    return InstallError(FailureReason.STATE_UNREADABLE, message)


def _shim_state(item: Mapping[str, Any]) -> ShimState:
    return ShimState(
        name=_text(item["name"]),
        path=_text(item["path"]),
        sha256=_text(item["sha256"]),
        digest=_text(item["digest"]),
        owners=_texts(item["owners"]),
        options=_words(item["options"]),
        adopted=_text(item["adopted"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        message = f"a text is {type(value).__name__}"
        raise TypeError(message)
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        message = f"a yes or no is {type(value).__name__}"
        raise TypeError(message)
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        message = f"a list is {type(value).__name__}"
        raise TypeError(message)
    return tuple(map(_text, value))


def _words(value: Mapping[str, object]) -> dict[str, str]:
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
