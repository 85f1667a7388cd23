"""How many more nodes each shim may have in work.

Pure. In: the limits, who has a slot, how many nodes each shim is about. Out: slots, as long as there are any. Called by
``plan``. Invariant: of no shim more is given than its limit allows; nothing of a paused or halted one is asked of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import cached_property

from provisioner.domain.room import Room
from trellis.provisioning.attempts import ShimLimits
from trellis.provisioning.ledger import Entry


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
        self._limits, self._room, self._count = limits, Room(entries), total
        self._used = Counter(name for uid, entry in entries.items() if uid not in idle for name in entry.shims)

    def take(self, uid: str, changes: tuple[str, ...]) -> bool:
        """Take a slot of each of these shims for a node, of all or none, and its room in the ledger."""
        if not (all(map(self._free, changes)) and self._room.take(uid, changes)):
            return False
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
