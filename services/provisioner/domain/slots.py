"""How many more nodes each shim may have in progress, by its limit and by what one ConfigMap holds.

Pure. In: the limits, who has a slot, how many nodes each shim is about. Out: slots, as long as there are any. Called by
``plan``. Invariants: of no shim more is given than its limit allows; nothing of a paused or halted one is asked of it;
a ledger that was planned can be written: what does not fit waits for a slot as it does for a limit of its own.
Source: Kubernetes takes 1 MiB of data in a ConfigMap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Final

from trellis.provisioning.attempts import ShimLimits
from trellis.provisioning.ledger import Entry

LEDGER_BYTES: Final = 768 * 2**10
"""Some 5,000 nodes with three shims each; annotations, which name halted shims, and fields' owners need the rest."""
_ENTRY_BYTES: Final = 64
"""Of digest, attempt, time and what is between them."""


class Slots:
    """``total``: how many nodes are to have each shim, or to lose it; asked once, and only if a limit depends on it.

    ``idle``: nodes whose entries take room in the ledger and no slot.
    """

    def __init__(
        self,
        limits: Mapping[str, ShimLimits],
        entries: Mapping[str, Entry],
        total: Callable[[], Counter[str]],
        idle: Collection[str] = (),
    ) -> None:
        self._limits, self._count = limits, total
        self._left = LEDGER_BYTES - sum(_size(uid, entry.shims) for uid, entry in entries.items())
        self._used = Counter(name for uid, entry in entries.items() if uid not in idle for name in entry.shims)

    def take(self, uid: str, changes: tuple[str, ...]) -> bool:
        """Take a slot of each of these shims for a node, of all or none, and its room in the ledger."""
        size = _size(uid, changes)
        if size > self._left or not all(map(self._free, changes)):
            return False
        self._left -= size
        self._used.update(changes)
        return True

    def _free(self, name: str) -> bool:
        limits = self._limits.get(name)
        if limits is None or limits.max_update is None:
            return True
        return self._used[name] < limits.max_update.resolve(self._total[name])

    @cached_property
    def _total(self) -> Counter[str]:
        return self._count()


def _size(uid: str, shims: Iterable[str]) -> int:
    return len(uid) + _ENTRY_BYTES + sum(len(shim) + 1 for shim in shims)
