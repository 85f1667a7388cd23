"""What one guest has seen: by key the version of the object that it was last called for well, and when it wants more.

Called by ``lifecycle`` and ``news``. Invariant: on disk stands what the snapshot has seen: it is written when that is
whole, and not believed while that is being written.
Source: ADR 57.
"""

from __future__ import annotations

from collections.abc import ItemsView
from typing import Final

from controller_host.progress import Mark, Past, Progress

NEVER: Final = "!"
"""A version that no object has: the key is not done."""


class Marks:
    """Marks of the controller ``uid``, by the text of the key."""

    __slots__ = ("_anew", "_by_key", "_dirty", "_progress", "_uid")

    def __init__(self, progress: Progress, uid: str) -> None:
        self._progress = progress
        self._uid = uid
        self._by_key: dict[str, Mark] = {}
        self._dirty: set[str] = set()
        self._anew = True

    def get(self, key: str) -> Mark | None:
        """Return the mark of a key, None if the guest never saw it."""
        return self._by_key.get(key)

    def items(self) -> ItemsView[str, Mark]:
        """Return all marks, by their keys."""
        return self._by_key.items()

    def note(self, key: str, mark: Mark) -> None:
        """Note what was done last; a mark without a version and a time says that there is nothing any more."""
        if mark.version or mark.due is not None:
            self._by_key[key] = mark
        else:
            self._by_key.pop(key, None)
        self._dirty.add(key)

    def recall(self, past: Past) -> None:
        """Take over what stands on disk; nothing, if that is not of one moment with the snapshot."""
        self._by_key = dict(past.marks) if past.whole else {}
        self._dirty.clear()
        self._anew = not past.whole

    def begin(self) -> None:
        """Let nothing count as done until ``commit``: the snapshot is about to change."""
        self._progress.begin(self._uid)

    def commit(self, sha256: str, config: str) -> None:
        """Write what counts as done now, with a snapshot of this module and configuration."""
        changed = {key: self._by_key.get(key, Mark("")) for key in (self._by_key if self._anew else self._dirty)}
        self._progress.commit(self._uid, Past(sha256, config, changed), anew=self._anew)
        self._dirty.clear()
        self._anew = False

    def lose(self) -> None:
        """Forget everything, on disk too: there is nobody any more who has seen it."""
        self._progress.lose(self._uid)
        self._by_key = {}
        self._dirty.clear()
        self._anew = True
