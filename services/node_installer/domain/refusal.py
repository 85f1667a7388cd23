"""A configuration with which the runtime did not start: it is stored to prevent repeated restarts with it.

Pure: JSON in and out, and the decision whether a restart is allowed. Called by ``gather`` (reads), ``apply`` (writes),
``plan`` and ``removal``.
It is stored below /run: the node's disk is unchanged, and a reboot deletes it. It is valid for an hour, because a
runtime may have failed for another reason; so an endless rollout restarts the runtime of a node at most twice an hour.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from node_installer.domain.errors import InstallError
from node_installer.domain.state import ShimState
from trellis.installer_api.json_text import read_json
from trellis.installer_api.result import FailureReason

PATH: Final = "/run/trellis-node-installer.refused.json"
HOLD_SECONDS: Final = 3600.0
REASONS: Final = frozenset(
    {FailureReason.RESTART_FAILED, FailureReason.RUNTIME_START_FAILED, FailureReason.VERIFICATION_FAILED}
)
"""Failures of a restart that the configuration may have caused."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused configuration: ``key``, time (seconds since 1970) and error."""

    key: str
    at: float
    message: str

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return (json.dumps(asdict(self)) + "\n").encode()


def key_of(files: Mapping[str, bytes | None], shims: Mapping[str, ShimState]) -> str:
    """Return the digest that identifies an attempt: of its files, and of the shims that these name, with versions."""
    contents = {path: None if content is None else content.hex() for path, content in files.items()}
    named = {handler: [shim.path, shim.digest] for handler, shim in shims.items()}
    return hashlib.sha256(json.dumps([contents, named], sort_keys=True).encode()).hexdigest()


def parse_refusal(content: bytes | None, now: float) -> Refusal | None:
    """Return the stored refusal; None if it is expired or malformed: it only prevents a restart."""
    try:
        value = read_json(content or b"null")
        refusal = Refusal(str(value["key"]), float(value["at"]), str(value["message"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return refusal if 0 <= now - refusal.at < HOLD_SECONDS else None


def check_refused(refusal: Refusal | None, key: str) -> None:
    """Reject a restart that failed recently.

    Raises:
        InstallError: ``RefusedBefore``, with the error of that restart.
    """
    if refusal is None or refusal.key != key:
        return
    message = (
        f"a restart of the container runtime with this configuration failed before ({refusal.message}). It is not "
        "retried for one hour: change the Shim, or repair the node and retry with trellis rollout resume SHIM, or "
        f"remove {PATH} on the node"
    )
    raise InstallError(FailureReason.REFUSED_BEFORE, message)
