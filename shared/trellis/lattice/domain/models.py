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
"""Applications of one lattice. Whoever may answer for wadm, or put to it, can invent them: of 400,000 reading the list
took 2 s (measured), and it is read every few seconds."""
_WAITS: Final = "waiting"
_FOR_STATUS: Final = "Waiting for status"


@dataclass(frozen=True, slots=True)
class Model:
    """An application. ``version`` is the newest that was put, ``deployed`` the one that runs, empty if none does."""

    name: str
    version: str
    deployed: str = ""
    status: str = ""
    message: str = ""


def read_models(payload: bytes) -> tuple[Model, ...]:
    """Return the applications in an answer to ``model.list``, in the order of their names.

    Raises:
        LatticeDataError: it is no such answer; if wadm says why it gave none, with its words.
    """
    return tuple(sorted(map(_model, _items(payload)), key=lambda model: model.name))


def read_statuses(payload: bytes) -> dict[str, Status]:
    """Return by name what an answer to ``model.list`` says of each application, as ``model.status`` would.

    What is unreadable is left out. Source: wadm 0.21; of an application without a status it says here that it waits for
    one, and there that there is none.

    Raises:
        LatticeDataError: it is no such answer.
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
    """Return the manifest in an answer to ``model.get``; what it holds is not looked at.

    Raises:
        LatticeDataError: there is none in it; with wadm's words if it says why.
    """
    answer = decoded(payload)
    if not isinstance(answer, dict):
        raise LatticeDataError("no answer of wadm")
    if answer.get("result") != "success" or answer.get("manifest") is None:
        raise LatticeDataError(f"wadm: {text(answer, 'message') or 'no manifest, and no message'}")
    return answer["manifest"]
