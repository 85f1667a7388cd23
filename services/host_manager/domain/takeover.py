"""Takes the fields of a child over from wasmcloud-operator's field manager.

Pure: managedFields in and out. Called by ``decide``. Without it two managers would own each field, and what we stop
setting would stay forever, because the other one still owns it. Source: server-side apply, "Transferring ownership".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trellis import names

Manifest = dict[str, Any]


def taken_over(child: Mapping[str, Any]) -> list[Manifest] | None:
    """Return the managedFields of a child with the other's entries under our name, None if it has none of them."""
    entries: list[Manifest] = child["metadata"].get("managedFields") or []
    theirs = [entry for entry in entries if _is_apply_of(entry, names.WASMCLOUD_OPERATOR)]
    if not theirs:
        return None
    ours = [entry for entry in entries if _is_apply_of(entry, names.FIELD_MANAGER_HOST_MANAGER)]
    rest = [entry for entry in entries if entry not in theirs and entry not in ours]
    fields: Manifest = {}
    for entry in (*theirs, *ours):
        fields = _union(fields, entry.get("fieldsV1") or {})
    merged = {**theirs[0], "manager": names.FIELD_MANAGER_HOST_MANAGER, "fieldsV1": fields}
    return [merged, *rest]


def is_applied_by_us(child: Mapping[str, Any]) -> bool:
    """Return whether our field manager has applied a child."""
    entries = child["metadata"].get("managedFields") or ()
    return any(_is_apply_of(entry, names.FIELD_MANAGER_HOST_MANAGER) for entry in entries)


def _is_apply_of(entry: Mapping[str, Any], manager: str) -> bool:
    return bool(entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"))


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> Manifest:
    """Return the set of fields that are in either; each level is an object by path element."""
    keys = {**one, **other}
    return {key: _union(one.get(key) or {}, other.get(key) or {}) for key in keys}
