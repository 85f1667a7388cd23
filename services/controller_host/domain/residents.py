"""Guests in memory, and the selection of guests to suspend when memory is short.

Pure. In: bytes of guests as they are used. Out: the guests to suspend, least recently used first. Called by
``hosting``. Invariant: guests that are pinned or in progress are never selected.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Residents:
    """Guests in memory, by ``namespace/name`` of their controllers. ``budget``: total bytes; 0: no limit."""

    budget: int
    _bytes: OrderedDict[str, int] = field(default_factory=OrderedDict)
    total: int = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def __contains__(self, key: object) -> bool:
        return key in self._bytes

    def fits(self, size: int) -> bool:
        """Return whether there is memory for one more of this size."""
        return not self.budget or self.total + size <= self.budget

    def used(self, key: str, size: int) -> None:
        """Record the use of a guest and its current size in bytes."""
        self.total += size - self._bytes.pop(key, 0)
        self._bytes[key] = size

    def weighed(self, key: str, size: int) -> None:
        """Record the size of a guest in bytes without a change of its last use."""
        if key in self._bytes:
            self.total += size - self._bytes[key]
            self._bytes[key] = size
        else:
            self.used(key, size)

    def remove(self, key: str) -> None:
        """Remove a guest that is no longer in memory."""
        self.total -= self._bytes.pop(key, 0)

    def surplus(self, may_go: Callable[[str], bool], deleting: Callable[[str], bool]) -> list[str]:
        """Return the guests to suspend so that the rest fits into the budget; fewer, if too few of them ``may_go``.

        Guests that are ``going`` were selected before: their memory counts as free.
        """
        if not self.budget or self.total <= self.budget:
            return []
        left, found = self.total - sum(size for key, size in self._bytes.items() if deleting(key)), []
        for key, size in self._bytes.items():
            if left <= self.budget:
                break
            if may_go(key):
                found.append(key)
                left -= size
        return found
