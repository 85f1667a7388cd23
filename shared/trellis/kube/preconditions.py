"""Checks that the write of a leader has preconditions: UID and resourceVersion of the decided state.

In: the body of a write. Out: nothing, or ``ValueError`` for a programming error. Called by ``trellis.kube.client`` for
guarded views. A guard keeps a former leader from sending; only a precondition rejects a write that it had already sent
(ADR 9). Pure. Source: a resourceVersion identifies one state of one object; the UID is needed too because an apply
without it re-creates a deleted object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_UID: Final = "/metadata/uid"
_VERSION: Final = "/metadata/resourceVersion"


def require(what: str, body: Mapping[str, Any]) -> None:
    """Raise ValueError unless the body's metadata contains uid and resourceVersion."""
    metadata = body.get("metadata") or {}
    _refuse(what, [name for name in ("uid", "resourceVersion") if not metadata.get(name)])


def require_tests(what: str, ops: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError unless a JSON patch tests uid and resourceVersion."""
    tested = {op.get("path") for op in ops if op.get("op") == "test" and op.get("value")}
    _refuse(what, [f"a test of {path}" for path in (_UID, _VERSION) if path not in tested])


def only_if(uid: str, resource_version: str) -> list[dict[str, Any]]:
    """Return the first operations of a JSON patch, which ensure that it changes only the state that was read."""
    return [
        {"op": "test", "path": _UID, "value": uid},
        {"op": "test", "path": _VERSION, "value": resource_version},
    ]


def _refuse(what: str, missing: Sequence[str]) -> None:
    if missing:
        raise ValueError(f"{what} needs {' and '.join(missing)}: writes of a leader require preconditions")
