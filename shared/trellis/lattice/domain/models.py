"""Parses the list of applications that wadm returns.

Pure. In: an answer of wadm. Out: applications. Called by ``trellis.lattice.follow`` and ``wadm``. Source: wadm 0.21:
``model.list`` answers with a bare list, ``model.get`` without a name with ``{"models": […]}``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trellis.lattice.domain.hosts import TEXT_KEPT
from trellis.lattice.domain.reading import LatticeDataError, decoded, text
from trellis.lattice.domain.replies import UNDEPLOYED, Status, read_status_in

MODELS_MOST: Final = 10_000
"""Limit per lattice. A client with permission to answer for wadm, or to put, can invent applications; parsing a list of
400,000 had a duration of 2 s (measured), and it is read every few seconds."""
_WAITS: Final = "waiting"
_FOR_STATUS: Final = "Waiting for status"


@dataclass(frozen=True, slots=True)
class Model:
    """An application. ``version``: the newest stored version, ``deployed``: the deployed one, "" if there is none."""

    name: str
    version: str
    deployed: str = ""
    status: str = ""
    message: str = ""


def read_models(payload: bytes) -> tuple[Model, ...]:
    """Return the applications in an answer to ``model.list``, ordered by name.

    Raises:
        LatticeDataError: the answer is invalid, or an error; then with the message of wadm.
    """
    return tuple(sorted(map(_model, _items(payload)), key=lambda model: model.name))


def read_statuses(payload: bytes) -> dict[str, Status]:
    """Return the statuses by name in an answer to ``model.list``, in the form of ``model.status``.

    Invalid entries are omitted. Source: wadm 0.21; for an application without a status, ``model.list`` returns
    ``waiting``, and ``model.status`` that there is none.

    Raises:
        LatticeDataError: the answer is invalid.
    """
    found: dict[str, Status] = {}
    for item in _items(payload):
        with contextlib.suppress(LatticeDataError):
            status = read_status_in(item.get("detailed_status"))
            nothing = status.status == _WAITS and status.message.startswith(_FOR_STATUS) and not status.scalers
            found[text(item, "name", required=True)] = UNDEPLOYED if nothing else status
    return found


def _items(payload: bytes) -> list[Mapping[str, Any]]:
    answer = decoded(payload)
    if isinstance(answer, dict):
        if answer.get("result") == "error":
            raise LatticeDataError(f"wadm: {text(answer, 'message') or 'an error without a message'}")
        answer = answer.get("models")
    if not isinstance(answer, list) or not all(isinstance(item, dict) for item in answer):
        raise LatticeDataError("not a list of applications")
    if len(answer) > MODELS_MOST:
        raise LatticeDataError(f"{len(answer):,} applications: the limit per lattice is {MODELS_MOST:,}")
    return answer


def _model(item: Mapping[str, Any]) -> Model:
    detailed = item.get("detailed_status")
    inner = detailed.get("status") if isinstance(detailed, dict) else None
    status = inner if isinstance(inner, dict) else {}
    return Model(
        name=text(item, "name", required=True)[:TEXT_KEPT],
        version=text(item, "version")[:TEXT_KEPT],
        deployed=text(item, "deployed_version")[:TEXT_KEPT],
        status=(text(status, "type") or text(item, "status"))[:TEXT_KEPT],
        message=(text(status, "message") or text(item, "status_message"))[:TEXT_KEPT],
    )


def read_manifest(payload: bytes) -> object:
    """Return the manifest in an answer to ``model.get``, without validation of its content.

    Raises:
        LatticeDataError: the answer has no manifest; with the message of wadm if it has one.
    """
    answer = decoded(payload)
    if not isinstance(answer, dict):
        raise LatticeDataError("not an answer of wadm")
    if answer.get("result") != "success" or answer.get("manifest") is None:
        raise LatticeDataError(f"wadm: {text(answer, 'message') or 'no manifest, and no message'}")
    return answer["manifest"]
