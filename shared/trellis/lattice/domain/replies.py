"""Parses the answers of wadm to a request about one application.

Pure. In: answers of wadm. Out: the result, or the error message of wadm. Called by ``trellis.lattice.wadm.client``.
Invariant: an answer of any other shape raises ``LatticeDataError`` only. Source: answers of wadm 0.21
(``tests/data/lattice/wadm-replies.jsonl``), which distinguishes errors by their text only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis.lattice.domain.reading import LatticeDataError, decoded, number, require_shallow, text

MESSAGE_KEPT: Final = 1024
WHOLE_MESSAGE_KEPT: Final = 4096
"""Characters of the message about a whole application, which has those of all its scalers."""
SCALERS_KEPT: Final = 20_000
VERSIONS_KEPT: Final = 1000
_SCALER_CHARACTERS: Final = 200
"""What one takes besides its words: an object, four texts."""
_BACKTRACE: Final = "\n\nStack backtrace:"


class Refusal(StrEnum):
    """Why wadm refused something, as the reason of a condition.

    ``REJECTED``: it will until the manifest is another. ``BLOCKED``: another application is in the way, or is missing.
    ``TOO_LARGE``: the lattice's NATS does not take the manifest, so wadm was not asked. ``FAILED``: wadm itself could
    not, and may the next time.
    """

    REJECTED = "Rejected"
    VERSION_EXISTS = "VersionExists"
    VERSION_MISSING = "VersionMissing"
    BLOCKED = "Blocked"
    TOO_LARGE = "TooLarge"
    FAILED = "WadmFailed"


_KNOWN: Final = (
    (re.compile(r"Manifest version .* already exists", re.DOTALL), Refusal.VERSION_EXISTS),
    (re.compile(r"Internal storage error|Error notifying processors"), Refusal.FAILED),
    (re.compile(r"Application with the name .* does not have (a|the specified) version"), Refusal.VERSION_MISSING),
    (re.compile(r"Component identifier .* is already deployed in a different application"), Refusal.BLOCKED),
    (re.compile(r"Application contains shared components that are not deployed"), Refusal.BLOCKED),
)


class WadmRefusedError(Exception):
    """wadm refused a request; the text is wadm's own, without the traces of its stack."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Put:
    """A version that was stored. ``created``: it is the application's first; ``versions``: how many it has now."""

    version: str
    created: bool
    versions: int


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an application, and whether it is the one that is deployed."""

    version: str
    deployed: bool


@dataclass(frozen=True, slots=True)
class Scaler:
    """What wadm says of one of its scalers."""

    kind: str
    name: str
    status: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """What wadm says of an application; it says ``undeployed`` of one that it does not know, too."""

    status: str
    message: str = ""
    scalers: tuple[Scaler, ...] = ()

    @property
    def characters(self) -> int:
        """How much it says, with what it takes to keep a scaler."""
        told = sum(len(one.kind) + len(one.name) + len(one.status) + len(one.message) for one in self.scalers)
        return len(self.status) + len(self.message) + told + _SCALER_CHARACTERS * len(self.scalers)


UNDEPLOYED: Final = Status("undeployed")
"""What wadm says of an application of which it has no status."""


def read_put(payload: bytes) -> Put:
    """Return the version that was stored.

    Raises:
        WadmRefusedError: it was not.
        LatticeDataError: it is no such answer.
    """
    answer = _answer(payload, "created", "newversion")
    version = text(answer, "current_version", required=True)
    return Put(version, answer["result"] == "created", number(answer, "total_versions") or 0)


def read_deploy(payload: bytes) -> str | None:
    """Return the version that is deployed from now on, "" if none is; None if there is no such application.

    Raises:
        WadmRefusedError: it is not deployed, or not undeployed.
        LatticeDataError: it is no such answer.
    """
    answer = _answer(payload, "acknowledged", "notfound")
    return text(answer, "version") if answer["result"] == "acknowledged" else None


def read_delete(payload: bytes) -> bool:
    """Return whether there was something to delete.

    Raises:
        WadmRefusedError: it is not deleted, although wadm's answer may say so.
        LatticeDataError: it is no such answer.
    """
    answer = _answer(payload, "deleted", "noop")
    # wadm 0.21 says "deleted" of a last version that its storage would not delete.
    if text(answer, "message").startswith("Internal storage error"):
        raise _refused(answer)
    return bool(answer["result"] == "deleted")


def read_get(payload: bytes) -> Mapping[str, Any] | None:
    """Return a manifest, None if there is no such application or version.

    Raises:
        WadmRefusedError: wadm could not say.
        LatticeDataError: it is no such answer.
    """
    answer = _answer(payload, "success", "notfound")
    if answer["result"] == "notfound":
        return None
    manifest = answer.get("manifest")
    if not isinstance(manifest, dict):
        raise LatticeDataError("`manifest` is not a map")
    require_shallow(manifest, "`manifest`")
    return manifest


def read_versions(payload: bytes) -> tuple[Version, ...] | None:
    """Return the versions of an application, the oldest first; None if there is no such application.

    Raises:
        WadmRefusedError: wadm could not say.
        LatticeDataError: it is no such answer.
    """
    answer = _answer(payload, "success", "notfound")
    if answer["result"] == "notfound":
        return None
    found = _rows(answer, "versions")[-VERSIONS_KEPT:]
    return tuple(Version(text(one, "version", required=True), one.get("deployed") is True) for one in found)


def read_status(payload: bytes) -> Status:
    """Return the status in an answer to ``model.status``.

    Raises:
        WadmRefusedError: wadm could not say.
        LatticeDataError: it is no such answer.
    """
    answer = _answer(payload, "ok", "notfound")
    return UNDEPLOYED if answer["result"] == "notfound" else read_status_in(answer.get("status"))


def read_status_said(payload: bytes) -> Status:
    """Return the status that wadm said of itself, on ``wadm.status.<lattice>.<application>``.

    Raises:
        LatticeDataError: it is none.
    """
    return read_status_in(decoded(payload))


def read_status_in(value: object) -> Status:
    """Return the status that an answer holds.

    Raises:
        LatticeDataError: it is none.
    """
    if not isinstance(value, dict):
        raise LatticeDataError("`status` is not a map")
    kind, message = _said(value, WHOLE_MESSAGE_KEPT)
    scalers = []
    for one in _rows(value, "scalers")[:SCALERS_KEPT]:
        status, words = _said(one, MESSAGE_KEPT)
        scalers.append(Scaler(_kept(text(one, "kind")), _kept(text(one, "name")), status, words))
    return Status(kind, message, tuple(scalers))


def _said(holder: Mapping[str, Any], most: int) -> tuple[str, str]:
    inner = holder.get("status")
    if not isinstance(inner, dict):
        raise LatticeDataError("`status.status` is not a map")
    return _kept(text(inner, "type", required=True)), _kept(text(inner, "message"), most)


def _rows(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = holder.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise LatticeDataError(f"`{key}` is not a list of maps")
    return found


def _answer(payload: bytes, *expected: str) -> Mapping[str, Any]:
    answer = decoded(payload)
    if not isinstance(answer, dict):
        raise LatticeDataError("no answer of wadm")
    result = text(answer, "result", required=True)
    if result == "error":
        raise _refused(answer)
    if result not in expected:
        raise LatticeDataError(f"`result` is {_kept(result)!r}, which is not one of: {', '.join(expected)}")
    return answer


def _refused(answer: Mapping[str, Any]) -> WadmRefusedError:
    message = _kept(text(answer, "message").partition(_BACKTRACE)[0].strip()) or "an error without a message"
    refusal = next((refusal for pattern, refusal in _KNOWN if pattern.match(message)), Refusal.REJECTED)
    return WadmRefusedError(refusal, message)


def _kept(words: str, most: int = MESSAGE_KEPT) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
