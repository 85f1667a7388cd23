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
"""Maximum characters of the message of a whole application, which includes those of its scalers."""
SCALERS_KEPT: Final = 20_000
VERSIONS_KEPT: Final = 1000
_SCALER_CHARACTERS: Final = 200
"""Memory of a scaler besides its texts, as characters: an object and four strings."""
_BACKTRACE: Final = "\n\nStack backtrace:"


class Refusal(StrEnum):
    """Reason of a rejected request, as in conditions.

    ``REJECTED``: permanent until the manifest changes. ``BLOCKED``: another application conflicts, or is missing.
    ``TOO_LARGE``: the manifest exceeds the limit of the NATS of the lattice, and was not sent. ``FAILED``: wadm failed,
    and a retry may succeed.
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
    """wadm rejected a request; the message is that of wadm, without its stack backtrace."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Put:
    """A stored version. ``created``: it is the first one of the application; ``versions``: their number."""

    version: str
    created: bool
    versions: int


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an application, and whether it is the deployed one."""

    version: str
    deployed: bool


@dataclass(frozen=True, slots=True)
class Scaler:
    """The status of a scaler in wadm."""

    kind: str
    name: str
    status: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an application in wadm; ``undeployed`` also for an unknown application."""

    status: str
    message: str = ""
    scalers: tuple[Scaler, ...] = ()

    @property
    def characters(self) -> int:
        """Size in characters, including the memory of the scalers."""
        scaler_characters = sum(
            len(scaler.kind) + len(scaler.name) + len(scaler.status) + len(scaler.message) for scaler in self.scalers
        )
        return len(self.status) + len(self.message) + scaler_characters + _SCALER_CHARACTERS * len(self.scalers)


UNDEPLOYED: Final = Status("undeployed")
"""Status of an application for which wadm has none."""


def read_put(payload: bytes) -> Put:
    """Return the stored version.

    Raises:
        WadmRefusedError: wadm did not store it.
        LatticeDataError: the answer is invalid.
    """
    answer = _answer(payload, "created", "newversion")
    version = text(answer, "current_version", required=True)
    return Put(version, answer["result"] == "created", number(answer, "total_versions") or 0)


def read_deploy(payload: bytes) -> str | None:
    """Return the deployed version after the request, "" for none; None if the application does not exist.

    Raises:
        WadmRefusedError: wadm did not deploy, or did not undeploy.
        LatticeDataError: the answer is invalid.
    """
    answer = _answer(payload, "acknowledged", "notfound")
    return text(answer, "version") if answer["result"] == "acknowledged" else None


def read_delete(payload: bytes) -> bool:
    """Return whether anything was deleted.

    Raises:
        WadmRefusedError: wadm did not delete, even if the result of its answer is ``deleted``.
        LatticeDataError: the answer is invalid.
    """
    answer = _answer(payload, "deleted", "noop")
    # wadm 0.21 returns "deleted" for a last version whose deletion failed in its storage.
    if text(answer, "message").startswith("Internal storage error"):
        raise _refused(answer)
    return bool(answer["result"] == "deleted")


def read_get(payload: bytes) -> Mapping[str, Any] | None:
    """Return a manifest, None if the application or version does not exist.

    Raises:
        WadmRefusedError: wadm returned an error.
        LatticeDataError: the answer is invalid.
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
    """Return the versions of an application, the oldest first; None if it does not exist.

    Raises:
        WadmRefusedError: wadm returned an error.
        LatticeDataError: the answer is invalid.
    """
    answer = _answer(payload, "success", "notfound")
    if answer["result"] == "notfound":
        return None
    found = _rows(answer, "versions")[-VERSIONS_KEPT:]
    return tuple(Version(text(item, "version", required=True), item.get("deployed") is True) for item in found)


def read_status(payload: bytes) -> Status:
    """Return the status in an answer to ``model.status``.

    Raises:
        WadmRefusedError: wadm returned an error.
        LatticeDataError: the answer is invalid.
    """
    answer = _answer(payload, "ok", "notfound")
    return UNDEPLOYED if answer["result"] == "notfound" else read_status_in(answer.get("status"))


def read_published_status(payload: bytes) -> Status:
    """Return the status that wadm published on ``wadm.status.<lattice>.<application>``.

    Raises:
        LatticeDataError: the message is not a status.
    """
    return read_status_in(decoded(payload))


def read_status_in(value: object) -> Status:
    """Return the status in a decoded answer.

    Raises:
        LatticeDataError: the value is not a status.
    """
    if not isinstance(value, dict):
        raise LatticeDataError("`status` is not a map")
    kind, message = _type_and_message(value, WHOLE_MESSAGE_KEPT)
    scalers = []
    for row in _rows(value, "scalers")[:SCALERS_KEPT]:
        status, scaler_message = _type_and_message(row, MESSAGE_KEPT)
        scalers.append(Scaler(_kept(text(row, "kind")), _kept(text(row, "name")), status, scaler_message))
    return Status(kind, message, tuple(scalers))


def _type_and_message(holder: Mapping[str, Any], most: int) -> tuple[str, str]:
    inner = holder.get("status")
    if not isinstance(inner, dict):
        raise LatticeDataError("`status.status` is not a map")
    return _kept(text(inner, "type", required=True)), _kept(text(inner, "message"), most)


def _rows(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = holder.get(key) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise LatticeDataError(f"`{key}` is not a list of maps")
    return found


def _answer(payload: bytes, *expected: str) -> Mapping[str, Any]:
    answer = decoded(payload)
    if not isinstance(answer, dict):
        raise LatticeDataError("not an answer of wadm")
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


def _kept(value: str, most: int = MESSAGE_KEPT) -> str:
    return value if len(value) <= most else f"{value[: most - 1]}…"
