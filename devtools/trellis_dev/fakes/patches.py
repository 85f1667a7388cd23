"""JSON patch and merge patch, for the in-memory API server.

Pure: manifests and patches in, a new manifest out. Called by ``trellis_dev.fakes.server``.
Source: RFC 6902 (add, replace, remove, test), RFC 6901 (pointers), RFC 7386.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from trellis.kube.resources import Manifest


class TestFailed(Exception):  # noqa: N818 - name of RFC 6902
    """The value of a ``test`` operation does not match."""

    __test__ = False  # not a test case, despite the name


class BadPatchError(Exception):
    """An operation is invalid: unknown, or its path does not exist."""


def json_patch(manifest: Manifest, ops: Sequence[Mapping[str, Any]]) -> Manifest:
    """Return the manifest after all operations. On TestFailed or BadPatchError no operation was applied."""
    result: Manifest = copy.deepcopy(manifest)
    for op in ops:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:])
        parent = _walk(result, parents, op)
        match parent:
            case dict():
                _patch_map(parent, last, op)
            case list():
                _patch_list(parent, last, op)
            case _:
                raise BadPatchError(f"{op['op']} {op['path']}: the parent is not a container")
    return result


def _walk(target: Any, parts: Sequence[str], op: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    for part in parts:
        try:
            target = target[int(part)] if isinstance(target, list) else target[part]
        except (KeyError, IndexError, TypeError, ValueError):
            if op["op"] == "test":
                raise TestFailed(op["path"]) from None
            raise BadPatchError(f"{op['op']} {op['path']}: no such path") from None
    return target


def _patch_map(parent: dict[str, Any], key: str, op: Mapping[str, Any]) -> None:
    kind = op["op"]
    if kind == "test":
        if parent.get(key) != op.get("value"):
            raise TestFailed(op["path"])
    elif kind == "add" or (kind == "replace" and key in parent):
        parent[key] = copy.deepcopy(op["value"])
    elif kind == "remove" and key in parent:
        del parent[key]
    else:
        raise BadPatchError(f"{kind} {op['path']}: no such path")


def _patch_list(parent: list[Any], key: str, op: Mapping[str, Any]) -> None:
    kind = op["op"]
    index = len(parent) if key == "-" else int(key)
    inside = index < len(parent)
    if kind == "test":
        if not inside or parent[index] != op.get("value"):
            raise TestFailed(op["path"])
    elif kind == "add" and index <= len(parent):
        parent.insert(index, copy.deepcopy(op["value"]))
    elif kind == "replace" and inside:
        parent[index] = copy.deepcopy(op["value"])
    elif kind == "remove" and inside:
        del parent[index]
    else:
        raise BadPatchError(f"{kind} {op['path']}: no such path")


def merge_patch(target: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the target with the patch merged in; null removes a field."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result
