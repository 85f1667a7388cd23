"""Assigns slots: how many more nodes each shim may have in progress, by its limit and the size of a ConfigMap.

Pure. In: the limits, the present slots, the number of nodes of each shim. Out: slots, as long as any are free. Called
by ``plan``. Invariants: no shim gets more slots than its limit allows; paused and halted shims request none; a planned
ledger can be written: an entry that does not fit waits for a slot as for any other limit.
Source: the limit of Kubernetes for the data of a ConfigMap is 1 MiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Final

from trellis.provisioning.attempts import ShimLimits
from trellis.provisioning.ledger import Entry

LEDGER_BYTES: Final = 768 * 2**10
"""Some 5,000 nodes with three shims each; the rest is for annotations, which name halted shims, and managedFields."""
RECORD_BYTES: Final = 128 * 2**10
"""Records of pods besides: 250 nodes with pods of 20 owners each. A record of 500 owners has 15 KiB."""
_ENTRY_BYTES: Final = 64
"""Size of digest, attempt, time and separators."""


class Slots:
    """Free slots. ``total``: number of nodes that are to have or lose each shim; called once, and only if needed.

    ``idle``: nodes whose entries use space in the ledger but no slot. ``recorded``: bytes of the records of pods.
    """

    def __init__(
        self,
        limits: Mapping[str, ShimLimits],
        entries: Mapping[str, Entry],
        total: Callable[[], Counter[str]],
        idle: Collection[str] = (),
        recorded: int = 0,
    ) -> None:
        self._limits, self._count = limits, total
        self._records_left = RECORD_BYTES - recorded
        self._left = LEDGER_BYTES - sum(_size(uid, entry.shims) for uid, entry in entries.items())
        self._used = Counter(name for uid, entry in entries.items() if uid not in idle for name in entry.shims)

    def take(self, uid: str, changes: tuple[str, ...], record: int = 0) -> bool:
        """Take a slot of each of these shims for a node, of all or none, and its space in the ledger.

        ``record``: bytes of the record of its pods.
        """
        size = _size(uid, changes)
        if size > self._left or record > self._records_left or not all(map(self._free, changes)):
            return False
        self._left -= size
        self._records_left -= record
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
