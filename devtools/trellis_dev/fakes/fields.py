"""Field ownership, for the in-memory API server.

Pure except for its record. In: writes and their managers. Out: the fields of an object after an apply. Called by
``trellis_dev.fakes.server``. Invariant: an apply that omits a field removes it if no other manager owns it.
Source: server-side apply of the Kubernetes API concepts; fields of other kinds of writes stay, as with a
kube-apiserver. Each list is one field; the real server merges some lists by key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trellis.kube.resources import Manifest
from trellis_dev.fakes.patches import merge_patch

Path = tuple[str, ...]
_NOBODYS = {
    ("apiVersion",),
    ("kind",),
    *(
        ("metadata", name)
        for name in ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")
    ),
}
_ABSENT = object()


@dataclass
class FieldOwners:
    """Managers of one object and their fields. Apply and other writes of one manager count as two owners."""

    _fields: dict[str, set[Path]] = field(default_factory=dict)

    def written(self, old: Manifest, new: Manifest, manager: str) -> None:
        """Record a create (``old`` is {}), replace or patch: the manager becomes the only owner of changed fields."""
        after = _leaves_of(new)
        changed = {path for path in after if _value(old, path) != _value(new, path)}
        for owned in self._fields.values():
            owned.intersection_update(after - changed)
        self._fields.setdefault(f"Update {manager}", set()).update(changed)

    def conflicts(self, old: Manifest, wanted: Manifest, manager: str) -> list[str]:
        """Return the fields that an apply would take from other managers."""
        own = f"Apply {manager}"
        conflicting = {path for path in _leaves_of(wanted) if _value(old, path) != _value(wanted, path)}
        others = set().union(*(owned for owner, owned in self._fields.items() if owner != own), set())
        return sorted("." + ".".join(path) for path in conflicting & others)

    def applied(self, old: Manifest, wanted: Manifest, manager: str) -> Manifest:
        """Record a forced apply and return the object after it."""
        own = f"Apply {manager}"
        fields = _leaves_of(wanted)
        left_out = self._fields.get(own, set()) - fields
        conflicting = {path for path in fields if _value(old, path) != _value(wanted, path)}
        for owner, owned in self._fields.items():
            if owner != own:
                owned.difference_update(conflicting)
        self._fields[own] = fields
        others = set().union(*self._fields.values())
        result: Manifest = merge_patch(old, wanted)
        for path in left_out:
            # An empty map is a field of its own; it stays if another manager adds to it.
            if not any(other[: len(path)] == path for other in others):
                _drop(result, path)
        return result


def _leaves_of(manifest: Manifest) -> set[Path]:
    return set(_leaves(manifest)) - _NOBODYS


def _leaves(value: Manifest, path: Path = ()) -> Iterator[Path]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key)


def _value(manifest: Manifest, path: Path) -> object:
    found: Any = manifest
    for part in path:
        if not isinstance(found, dict) or part not in found:
            return _ABSENT
        found = found[part]
    return found


def _drop(manifest: Manifest, path: Path) -> None:
    parent = _value(manifest, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
