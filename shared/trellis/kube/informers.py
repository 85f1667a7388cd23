"""Creates one informer for all namespaces, or one per configured namespace.

In: namespaces, and a factory for an informer over shared objects. Out: the informers to run. Called by ``watches`` of
services that can be limited to namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from trellis.kube.informer import Informer

T = TypeVar("T")


class Informers(Generic[T]):
    """The informers of one kind."""

    def __init__(self, namespaces: Sequence[str], make: Callable[[str | None], Informer[T]]) -> None:
        """Create one for each of the namespaces, or a single one for all namespaces if there are none."""
        self._by_place = {namespace: make(namespace) for namespace in namespaces or (None,)}

    def __iter__(self) -> Iterator[Informer[T]]:
        """Yield the informers."""
        return iter(self._by_place.values())

    def synced(self, namespace: str | None) -> bool:
        """Return whether a namespace (None: all) was listed; False for a namespace that is not watched."""
        found = self._by_place.get(namespace)
        return found is not None and found.synced.is_set()
