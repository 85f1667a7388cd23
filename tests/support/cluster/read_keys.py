"""A manifest that notes the keys that a view reads, and whether a shape has them.

In: a manifest, and the ``TypedDict`` of its decoded keys. Out: the names of keys that are read and not decoded. Called
by tests of shapes.
"""

from __future__ import annotations

from typing import Any, get_args, get_type_hints, is_typeddict


class ReadKeys(dict[str, Any]):
    """A part of a manifest. ``missing``: receives ``Type.key`` of each key that is read and not in the shape."""

    def __init__(self, part: dict[str, Any], shape: Any, missing: list[str]) -> None:
        super().__init__({key: _read(value, get_type_hints(shape).get(key), missing) for key, value in part.items()})
        self.shape, self.missing = shape, missing

    def _note(self, key: object) -> None:
        if key not in get_type_hints(self.shape):
            self.missing.append(f"{self.shape.__name__}.{key}")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, and note its key."""
        self._note(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        """Return a value, and note its key."""
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        """Return whether there is a value, and note its key."""
        self._note(key)
        return super().__contains__(key)


def _read(value: Any, shape: Any, missing: list[str]) -> Any:
    for entry in (shape, *get_args(shape)):
        if is_typeddict(entry) and isinstance(value, dict):
            return ReadKeys(value, entry, missing)
        if isinstance(value, list) and get_args(entry) and is_typeddict(get_args(entry)[0]):
            return [ReadKeys(item, get_args(entry)[0], missing) for item in value]
    return value
