"""What one guest has seen: by key the version of the object that it was last called for well, and when it wants more.

Called by ``lifecycle`` and ``news``. Invariants: what counts as done is what the snapshot has seen: both are written
with one token, the snapshot first, and with two different ones nothing counts as done; a key that a guest was ever
called for stays until it was called for its end, whatever else is lost: nobody else could tell it of that; what is
here is right whether the disk takes it or not, and what it did not take goes there with the next that it does.
Source: ADR 57.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable

from controller_host.state.progress import NEVER, Mark, Progress, SeenVersions


class Marks:
    """Marks of the controller ``uid``, by the text of the key."""

    __slots__ = ("_by_key", "_dirty", "_owed", "_progress", "_uid")

    def __init__(self, progress: Progress, uid: str) -> None:
        self._progress = progress
        self._uid = uid
        self._by_key: dict[str, Mark] = {}
        self._dirty: set[str] = set()
        self._owed: tuple[str, str, str] | None = None

    @property
    def owed(self) -> bool:
        """Whether what a snapshot on disk has seen is still to be written."""
        return self._owed is not None

    def get(self, key: str) -> Mark | None:
        """Return the mark of a key, None if the guest never saw it."""
        return self._by_key.get(key)

    def items(self) -> ItemsView[str, Mark]:
        """Return all marks, by their keys."""
        return self._by_key.items()

    def meet(self, keys: Iterable[str]) -> None:
        """Keep keys that the guest is about to be called for, on disk too, before it is.

        Raises:
            NotWritten: the disk does not take them. Those that it was called for before may be told all the same.
        """
        if new := [key for key in keys if key not in self._by_key]:
            self._progress.meet(self._uid, new)
            self._by_key |= dict.fromkeys(new, Mark(NEVER))

    def note(self, key: str, mark: Mark) -> None:
        """Note what was done last; a mark without a version and a time says that there is nothing any more."""
        if mark.version or mark.due is not None:
            self._by_key[key] = mark
        else:
            self._by_key.pop(key, None)
        self._dirty.add(key)

    def recall(self, past: SeenVersions, token: str) -> None:
        """Take over what stands on disk, as done if it is of one moment with the snapshot, which has ``token``."""
        if past.token != token:
            self.lose(past)
            return
        self._by_key = dict(past.marks)
        self._dirty.clear()
        self._owed = None

    def commit(self, sha256: str, config: str, token: str) -> None:
        """Write what counts as done, now that a snapshot of this module and configuration has ``token``.

        Raises:
            NotWritten: the disk does not take it: it is owed, and nothing counts as done if the host ends before.
        """
        self._owed = (sha256, config, token)
        self.settle()

    def settle(self) -> None:
        """Write what is owed for the snapshot on disk, if anything is; raises NotWritten."""
        if self._owed is None:
            return
        changed = {key: self._by_key.get(key, Mark("")) for key in self._dirty}
        self._progress.commit(self._uid, SeenVersions(*self._owed, changed))
        self._owed = None
        self._dirty.clear()

    def awake(self) -> None:
        """Take word that the guest is in memory: from now on what it has seen is not what its snapshot has."""
        self._owed = None

    def lose(self, past: SeenVersions | None = None) -> None:
        """Let nothing count as done any more: there is nobody who has seen it. ``past``: what stands on disk.

        Raises:
            NotWritten: the disk does not take it. It is so nevertheless: what stands there is of no snapshot.
        """
        known = self._by_key if past is None else past.marks
        self._by_key = dict.fromkeys(known, Mark(NEVER))
        self._dirty |= self._by_key.keys()  # what stands there must not be taken for what the next snapshot has seen
        self._owed = None
        self._progress.lose(self._uid)
        self._dirty.clear()
