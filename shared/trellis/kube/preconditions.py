"""What a leader's write must say: which very object, in which state, it was decided on.

In: the body of a write. Out: nothing, or ``ValueError`` for the programmer. Called by ``trellis.kube.client`` for views
that are guarded. A guard keeps a former leader from sending; only a precondition keeps what it had sent already from
being carried out later (ADR 9). Pure. Source: a resourceVersion is of one object in one state; the uid is
asked for as well because an apply without it makes a new object of a deleted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_UID: Final = "/metadata/uid"
_VERSION: Final = "/metadata/resourceVersion"


def require(what: str, body: Mapping[str, Any]) -> None:
    """Raise ValueError unless the body's metadata names uid and resourceVersion."""
    metadata = body.get("metadata") or {}
    _refuse(what, [name for name in ("uid", "resourceVersion") if not metadata.get(name)])


def require_tests(what: str, ops: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError unless a JSON patch tests uid and resourceVersion."""
    tested = {op.get("path") for op in ops if op.get("op") == "test" and op.get("value")}
    _refuse(what, [f"a test of {path}" for path in (_UID, _VERSION) if path not in tested])


def only_if(uid: str, resource_version: str) -> list[dict[str, Any]]:
    """Return the operations a JSON patch begins with so that it changes only what was read."""
    return [
        {"op": "test", "path": _UID, "value": uid},
        {"op": "test", "path": _VERSION, "value": resource_version},
    ]


def _refuse(what: str, missing: Sequence[str]) -> None:
    if missing:
        raise ValueError(f"{what} needs {' and '.join(missing)}: a leader's write names what was read")
