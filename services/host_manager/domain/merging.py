"""Merges the user's additions to a container with the fields of Trellis, which take precedence.

Pure. Called by ``template``. Source: the merge of a Container in k8s-openapi 0.20, which wasmcloud-operator uses: lists
of named items are merged by their key, other lists are replaced as a whole, even by an empty one.
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
"""Key of the items of a list; lists with other names are replaced."""


class TemplateError(ValueError):
    """An addition of the user has a type that is invalid in a pod; the message names the field."""


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - it is JSON
    """Return a value without null fields, which are equivalent to missing ones."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def merge(theirs: Mapping[str, Any], ours: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return an object with the fields of both; ``ours`` takes precedence, and ``theirs`` comes first in lists.

    Raises:
        TemplateError: a field of ``theirs`` has another type than in ``ours``, which has an object or a list.
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
