"""Index of the objects of one kind by label: finds objects without a scan for each query.

Pure. In: names with their labels, by namespace. Out: names. Called by ``cached_kind``. Invariants: only labels that
were queried are indexed; the result equals that of a scan over all objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from controller_host.domain.watch_specs import Labels, Term


class Labelled(Protocol):
    """An object with labels."""

    @property
    def labels(self) -> Labels:
        """Values by key."""


@dataclass(eq=False, slots=True)
class LabelIndex:
    """Names of objects, by label key, then by namespace and value."""

    _keys: dict[str, dict[tuple[str, str], dict[str, None]]] = field(default_factory=dict)

    def clear(self) -> None:
        """Clear the index, because all objects were replaced."""
        self._keys.clear()

    def find(self, objects: Mapping[str, Mapping[str, Labelled]], namespace: str, term: Term) -> Iterator[str]:
        """Yield the names in a namespace that have one of a term's values, each once, in the order of the values."""
        found = self._keys.get(term.key)
        if found is None:
            found = self._keys[term.key] = {}
            for place, names in objects.items():
                for name, item in names.items():
                    if (value := item.labels.get(term.key)) is not None:
                        found.setdefault((place, value), {})[name] = None
        for value in term.values or ():
            yield from list(found.get((namespace, value), ()))

    def change(self, namespace: str, name: str, old: Labels | None, new: Labels | None) -> None:
        """Update the labels of an object; None: the object did not exist before, or was deleted."""
        for key, found in self._keys.items():
            before, after = (old or {}).get(key), (new or {}).get(key)
            if before == after:
                continue
            if before is not None and (names := found.get((namespace, before))) is not None:
                names.pop(name, None)
                if not names:
                    del found[namespace, before]
            if after is not None:
                found.setdefault((namespace, after), {})[name] = None
