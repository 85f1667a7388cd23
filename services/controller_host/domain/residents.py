"""Which guests are in memory, and which go to disk when it gets short.

Pure. In: bytes of guests as they are used. Out: those that are to be suspended, least recently used first. Called by
``hosting``. Invariant: who is pinned, or in progress, is never named.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Residents:
    """Guests in memory, by ``namespace/name`` of their controllers. ``budget``: bytes of all together; 0: no limit."""

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
        """Note that a guest was used, and its size by now."""
        self.total += size - self._bytes.pop(key, 0)
        self._bytes[key] = size

    def weighed(self, key: str, size: int) -> None:
        """Note the size of a guest that was looked at and not called: it is as long ago as it was."""
        if key in self._bytes:
            self.total += size - self._bytes[key]
            self._bytes[key] = size
        else:
            self.used(key, size)

    def gone(self, key: str) -> None:
        """Note that a guest is not in memory any more."""
        self.total -= self._bytes.pop(key, 0)

    def surplus(self, may_go: Callable[[str], bool], going: Callable[[str], bool]) -> list[str]:
        """Return whom to suspend so that the rest fits into the budget; fewer, if too many may not go.

        Those that are ``going`` were named before: their memory counts as free already.
        """
        if not self.budget or self.total <= self.budget:
            return []
        left, found = self.total - sum(size for key, size in self._bytes.items() if going(key)), []
        for key, size in self._bytes.items():
            if left <= self.budget:
                break
            if may_go(key):
                found.append(key)
                left -= size
        return found
