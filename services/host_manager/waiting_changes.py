"""Changed Secrets, collected for some seconds, then pending for the host groups whose hosts may have received them.

In: changes. Out: the pending changes of a group's next reconcile. Called by ``handlers``, ``gather`` and ``app``. State
only. Invariant: a change is pending until the pods of its group have it, or until the group proves not to use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from host_manager.domain.secret_changes import SecretChange


@dataclass(slots=True)
class Changes:
    """Changes of a leadership term. ``gathered``: by Secret, not handed over to groups; ``pending``: by group."""

    gathered: dict[str, SecretChange] = field(default_factory=dict)
    pending: dict[str, dict[str, SecretChange]] = field(default_factory=dict)
    _unseen: set[tuple[str, str]] = field(default_factory=set)
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    def collect(self, change: SecretChange) -> None:
        """Collect a change."""
        self.gathered[change.secret] = change.with_those_of(self.gathered.get(change.secret))

    def add_pending(self, change: SecretChange, groups: Iterable[str]) -> None:
        """Add a change to the pending ones of host groups."""
        for group in groups:
            waiting = self.pending.setdefault(group, {})
            waiting[change.secret] = change.with_those_of(waiting.get(change.secret))
            self._unseen.add((group, change.secret))

    def of(self, group: str) -> tuple[SecretChange, ...]:
        """Return the pending changes of a host group."""
        return tuple(self.pending.get(group, {}).values())

    def looked_at(self, group: str, seen: Iterable[SecretChange], over: Iterable[SecretChange]) -> None:
        """Record the changes that a reconcile of a group has seen, and those that are done for it."""
        self._unseen -= {(group, item.secret) for item in seen}
        waiting = self.pending.get(group, {})
        for item in over:
            if waiting.get(item.secret) == item:  # otherwise it changed in the meantime
                del waiting[item.secret]
        if not waiting:
            self.pending.pop(group, None)
        self._signal()

    def forget(self, group: str) -> None:
        """Drop a deleted host group."""
        self.pending.pop(group, None)
        self._unseen = {item for item in self._unseen if item[0] != group}
        self._signal()

    async def seen(self, secret: str) -> None:
        """Wait until each group with a pending change of a Secret has reconciled it."""
        while any(item[1] == secret for item in self._unseen):
            await self._arrival.wait()

    def _signal(self) -> None:
        self._arrival.set()
        self._arrival = asyncio.Event()
