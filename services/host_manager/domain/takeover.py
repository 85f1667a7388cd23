"""Transfers the field ownership of a child from wasmcloud-operator's field manager to that of Trellis.

Pure: managedFields in and out. Called by ``decide``. Without the transfer, fields that Trellis no longer sets would
remain, as the other manager would still own them. Source: server-side apply, "Transferring ownership".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trellis import names

Manifest = dict[str, Any]


def transferred_fields(child: Mapping[str, Any]) -> list[Manifest] | None:
    """Return the managedFields of a child with the transferred entries, None if there is nothing to transfer."""
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
    """Return whether the field manager of Trellis has applied a child."""
    entries = child["metadata"].get("managedFields") or ()
    return any(_is_apply_of(entry, names.FIELD_MANAGER_HOST_MANAGER) for entry in entries)


def _is_apply_of(entry: Mapping[str, Any], manager: str) -> bool:
    return bool(entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"))


def _union(item: Mapping[str, Any], other: Mapping[str, Any]) -> Manifest:
    """Return the union of two sets of fields; each level is an object by path element."""
    keys = {**item, **other}
    return {key: _union(item.get(key) or {}, other.get(key) or {}) for key in keys}
