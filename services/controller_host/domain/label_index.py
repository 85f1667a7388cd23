"""Which objects of one kind have a label: found without looking at all of them, for each of many who ask.

Pure. In: names with their labels, by namespace. Out: names. Called by ``cached_kind``. Invariants: only labels that
somebody asked for are kept in order; the answer is that of looking at every object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from controller_host.domain.watch_specs import Labels, Term


class Labelled(Protocol):
    """What has labels."""

    @property
    def labels(self) -> Labels:
        """By their keys."""


@dataclass(eq=False, slots=True)
class LabelIndex:
    """The names with a label, by its key, and by namespace and value."""

    _keys: dict[str, dict[tuple[str, str], dict[str, None]]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything: the objects are others now."""
        self._keys.clear()

    def find(self, objects: Mapping[str, Mapping[str, Labelled]], namespace: str, term: Term) -> Iterator[str]:
        """Yield the names in a namespace that have one of a term's values, each once, in the order of these."""
        found = self._keys.get(term.key)
        if found is None:
            found = self._keys[term.key] = {}
            for place, names in objects.items():
                for name, one in names.items():
                    if (value := one.labels.get(term.key)) is not None:
                        found.setdefault((place, value), {})[name] = None
        for value in term.values or ():
            yield from list(found.get((namespace, value), ()))

    def change(self, namespace: str, name: str, old: Labels | None, new: Labels | None) -> None:
        """Note which labels an object had, and has; None: it was not there, or is not any more."""
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
