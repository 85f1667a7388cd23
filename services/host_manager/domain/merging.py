"""Merges what a user adds to a container with what we set: ours over theirs.

Pure. Called by ``template``. Source: how k8s-openapi 0.20 merges a Container into another, which wasmcloud-operator
uses: lists of named things are merged by their key, other lists are replaced as a whole, also by an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_KEYS: Final[Mapping[str, str]] = {
    "env": "name",
    "ports": "containerPort",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "claims": "name",
}
"""What tells the items of a list apart; lists with other names are replaced."""


class TemplateError(ValueError):
    """What a user added has a shape that no pod can have; the message names the field."""


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - it is JSON
    """Return a value without the fields that are null, which mean the same as none."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def merge(theirs: Mapping[str, Any], ours: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return an object with the fields of both, ours where both have one; theirs come first in lists.

    Raises:
        TemplateError: a field of theirs is no object or list although ours is.
    """
    merged = dict(theirs)
    for key, value in ours.items():
        merged[key] = _merged(merged[key], value, f"{place}.{key}") if key in merged else value
    return merged


def _merged(theirs: Any, ours: Any, place: str) -> Any:  # noqa: ANN401 - it is JSON
    field = place.rpartition(".")[2]
    if isinstance(ours, Mapping):
        if not isinstance(theirs, Mapping):
            raise TemplateError(f"{place} has to be an object")
        return merge(theirs, ours, place)
    if isinstance(ours, list) and field in _KEYS:
        if not isinstance(theirs, list) or not all(isinstance(item, Mapping) for item in theirs):
            raise TemplateError(f"{place} has to be a list of objects")
        return _merged_by_key(theirs, ours, _KEYS[field], place)
    return ours


def _merged_by_key(theirs: list[Any], ours: list[Any], key: str, place: str) -> list[Any]:
    merged = list(theirs)
    for item in ours:
        found = next((index for index, known in enumerate(merged) if known.get(key) == item[key]), None)
        if found is None:
            merged.append(item)
        else:
            merged[found] = merge(merged[found], item, f"{place}[{item[key]}]")
    return merged
