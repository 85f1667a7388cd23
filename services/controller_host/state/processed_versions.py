"""Processed versions of one guest: by key, the object version of the last successful call, and the next due time.

Called by ``lifecycle`` and ``delivery_selection``. Invariants: a version counts as processed only if the snapshot
includes it: both are written with one token, the snapshot first; with different tokens no version counts. A key that
the guest was called for is kept until the guest was called for its deletion, even if all else is lost: no other source
reports the deletion. The state in memory is correct regardless of failed writes; later writes include what failed
before.
Source: ADR 57.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable

from controller_host.state.progress import NEVER, LastCall, Progress, SeenVersions


class ProcessedVersions:
    """Processed versions of the controller ``uid``, by the text of the key."""

    __slots__ = ("_by_key", "_dirty", "_owed", "_progress", "_uid")

    def __init__(self, progress: Progress, uid: str) -> None:
        self._progress = progress
        self._uid = uid
        self._by_key: dict[str, LastCall] = {}
        self._dirty: set[str] = set()
        self._owed: tuple[str, str, str] | None = None

    @property
    def owed(self) -> bool:
        """True if the processed versions of the snapshot on disk are not written yet."""
        return self._owed is not None

    def get(self, key: str) -> LastCall | None:
        """Return the last call for a key, None if the guest was never called for it."""
        return self._by_key.get(key)

    def items(self) -> ItemsView[str, LastCall]:
        """Return all last calls, by their keys."""
        return self._by_key.items()

    def meet(self, keys: Iterable[str]) -> None:
        """Record keys, also on disk, before the guest is called for them.

        Raises:
            NotWritten: the write failed. Keys that the guest was called for before can still be delivered.
        """
        if new := [key for key in keys if key not in self._by_key]:
            self._progress.meet(self._uid, new)
            self._by_key |= dict.fromkeys(new, LastCall(NEVER))

    def note(self, key: str, call: LastCall) -> None:
        """Record the last call for a key; a call without a version and a time removes the key."""
        if call.version or call.due is not None:
            self._by_key[key] = call
        else:
            self._by_key.pop(key, None)
        self._dirty.add(key)

    def restore(self, seen: SeenVersions, token: str) -> None:
        """Load the state from disk; its versions count as processed if its token is that of the snapshot."""
        if seen.token != token:
            self.lose(seen)
            return
        self._by_key = dict(seen.processed)
        self._dirty.clear()
        self._owed = None

    def commit(self, sha256: str, config: str, token: str) -> None:
        """Write the processed versions for the snapshot of this module and configuration with ``token``.

        Raises:
            NotWritten: the write failed and is owed; if the host ends before, no version counts as processed.
        """
        self._owed = (sha256, config, token)
        self.settle()

    def settle(self) -> None:
        """Write the owed versions of the snapshot on disk, if there are any; raises NotWritten."""
        if self._owed is None:
            return
        changed = {key: self._by_key.get(key, LastCall("")) for key in self._dirty}
        self._progress.commit(self._uid, SeenVersions(*self._owed, changed))
        self._owed = None
        self._dirty.clear()

    def awake(self) -> None:
        """Record that the guest is awake: its processed versions now differ from those of its snapshot."""
        self._owed = None

    def lose(self, seen: SeenVersions | None = None) -> None:
        """Mark all keys as not processed, because the state of the guest is lost. ``seen``: the state on disk.

        Raises:
            NotWritten: the write failed; the change is still effective, because the state on disk has no snapshot.
        """
        known = self._by_key if seen is None else seen.processed
        self._by_key = dict.fromkeys(known, LastCall(NEVER))
        self._dirty |= self._by_key.keys()  # the next commit has to replace all versions on disk
        self._owed = None
        self._progress.lose(self._uid)
        self._dirty.clear()
