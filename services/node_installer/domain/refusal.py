"""A configuration the runtime did not come up with: remembered, so that it is not restarted for it again and again.

Pure: JSON in and out, and the question whether a restart is worth a try. Called by ``gather`` (reads), ``apply``
(writes), ``plan`` and ``removal``.
It lies below /run: the node's disk stays as before, and a reboot forgets it. It holds for an hour, because a runtime
may have failed for another reason; so the worst that a rollout without end does to a node is two restarts an hour.
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
"""Why a restart may have been in vain because of what the runtime was told."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was refused (``key``), when (seconds since 1970) and how."""

    key: str
    at: float
    message: str

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return (json.dumps(asdict(self)) + "\n").encode()


def key_of(files: Mapping[str, bytes | None], shims: Mapping[str, ShimState]) -> str:
    """Return what makes two attempts the same: the files they leave, and the shims these name, in their versions."""
    contents = {path: None if content is None else content.hex() for path, content in files.items()}
    named = {handler: [shim.path, shim.digest] for handler, shim in shims.items()}
    return hashlib.sha256(json.dumps([contents, named], sort_keys=True).encode()).hexdigest()


def parse_refusal(content: bytes | None, now: float) -> Refusal | None:
    """Read what was refused; None where it does not hold any more, or is none: it only saves a restart."""
    try:
        value = read_json(content or b"null")
        refusal = Refusal(str(value["key"]), float(value["at"]), str(value["message"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return refusal if 0 <= now - refusal.at < HOLD_SECONDS else None


def check_refused(refusal: Refusal | None, key: str) -> None:
    """Refuse a restart that has failed a short time ago.

    Raises:
        InstallError: ``RefusedBefore``, with what was wrong then.
    """
    if refusal is None or refusal.key != key:
        return
    message = (
        f"the container runtime was restarted with this very configuration before, in vain ({refusal.message}). It "
        "is left alone for an hour from then: change the Shim, or mend the node and try again with trellis rollout "
        f"resume SHIM, or remove {PATH} there"
    )
    raise InstallError(FailureReason.REFUSED_BEFORE, message)
