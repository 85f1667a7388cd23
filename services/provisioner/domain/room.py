"""How many nodes may be in work at once by what one ConfigMap holds.

Pure. In: entries of the ledger. Out: whether one more fits. Called by ``plan``. Invariant: a ledger that was planned
can be written; what does not fit waits for a slot as it does for a limit of its own.
Source: Kubernetes takes 1 MiB of data in a ConfigMap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

LEDGER_BYTES: Final = 768 * 2**10
"""Some 5,000 nodes with three shims each; annotations, which name halted shims, and fields' owners need the rest."""
_ENTRY_BYTES: Final = 64
"""Of digest, attempt, time and what is between them."""


class _Entry(Protocol):
    @property
    def shims(self) -> tuple[str, ...]:
        """Which shims a node's slot is of."""


class Room:
    """What a ledger still has room for."""

    def __init__(self, entries: Mapping[str, _Entry]) -> None:
        self._left = LEDGER_BYTES - sum(_size(uid, entry.shims) for uid, entry in entries.items())

    def take(self, uid: str, shims: Iterable[str]) -> bool:
        """Take the room of a node's entry, if there is as much."""
        size = _size(uid, shims)
        if size > self._left:
            return False
        self._left -= size
        return True


def _size(uid: str, shims: Iterable[str]) -> int:
    return len(uid) + _ENTRY_BYTES + sum(len(shim) + 1 for shim in shims)
