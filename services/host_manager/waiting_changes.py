"""Changed Secrets: gathered for a moment, then waiting for the groups whose hosts may have been given them.

In: changes. Out: what a group's next run is to look at. Called by ``handlers``, ``gather`` and ``app``. It only
remembers. Invariant: a change waits until the pods of its group say it, or the group is seen not to use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from host_manager.domain.secret_changes import SecretChange


@dataclass(slots=True)
class Changes:
    """What is remembered in a term. ``gathered``: by Secret, no group knows of it yet; ``pending``: by group."""

    gathered: dict[str, SecretChange] = field(default_factory=dict)
    pending: dict[str, dict[str, SecretChange]] = field(default_factory=dict)
    _unseen: set[tuple[str, str]] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def heard(self, change: SecretChange) -> None:
        """Gather a change."""
        self.gathered[change.secret] = change.with_those_of(self.gathered.get(change.secret))

    def hand_over(self, change: SecretChange, groups: Iterable[str]) -> None:
        """Have groups look at a change."""
        for group in groups:
            waiting = self.pending.setdefault(group, {})
            waiting[change.secret] = change.with_those_of(waiting.get(change.secret))
            self._unseen.add((group, change.secret))

    def of(self, group: str) -> tuple[SecretChange, ...]:
        """Return what a group is to look at."""
        return tuple(self.pending.get(group, {}).values())

    def looked_at(self, group: str, seen: Iterable[SecretChange], over: Iterable[SecretChange]) -> None:
        """Note which changes a run of a group has seen, and which of them are over for it."""
        self._unseen -= {(group, one.secret) for one in seen}
        waiting = self.pending.get(group, {})
        for one in over:
            if waiting.get(one.secret) == one:  # else it changed again in the meantime
                del waiting[one.secret]
        if not waiting:
            self.pending.pop(group, None)
        self._tell()

    def forget(self, group: str) -> None:
        """Forget a group that is gone."""
        self.pending.pop(group, None)
        self._unseen = {one for one in self._unseen if one[0] != group}
        self._tell()

    async def seen(self, secret: str) -> None:
        """Wait until every group that was to look at a Secret's change has done so."""
        while any(one[1] == secret for one in self._unseen):
            await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
