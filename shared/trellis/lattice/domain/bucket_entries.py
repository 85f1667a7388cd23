"""Parses the entries of the wadm bucket of one lattice, in the order of their stream.

Pure. In: keys, sequences and values. Out: the applications of the lattice, and the proof of a deletion. Called by
``bucket``. Invariants: the name of an application is read from the value, as keys are ambiguous (lattice ``a`` with
application ``b-c``, lattice ``a-b`` with ``c``); invalid entries change nothing (ADR 0045); a lattice that exceeds the
limits is unknown as a whole, because a part of it would look like deletions.

Source: wadm 0.21 stores the names of a lattice as a list under ``<lattice>``, each application with all versions as a
map under ``<lattice>-<application>``, in the last entry of each key; with several tenants, the account and "-" precede
both. A put writes the application, then the list; a delete writes the list without the name, then purges the
application.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trellis.lattice.domain.models import MODELS_MOST
from trellis.lattice.domain.reading import LatticeDataError, decoded, require_shallow, text
from trellis.lattice.domain.store import AbsenceReason, StoredManifest, StoredModel

VERSIONS_KEPT: Final = 1000
KEYS_MOST: Final = 10 * MODELS_MOST
"""Limit per lattice. Each deleted application leaves a key, and lattices whose name starts with the name of this one
have ambiguous keys."""
BYTES_MOST: Final = 64 * 2**20
"""Limit on all entries of one lattice; wadm stores all versions of an application in one entry, at most 1 MiB."""


class TooManyError(Exception):
    """A lattice exceeds the limits on its entries in the wadm storage; the message has the limits and a remedy."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The last entry of a key. ``value``: None if it was purged or deleted."""

    key: str
    sequence: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """The cached part of an entry. ``model``: None if it is purged, or belongs to another lattice."""

    sequence: int
    purged: bool
    model: StoredModel | None = None
    size: int = 0


class BucketEntries:
    """The entries of one lattice. ``bucket``: creation time of the storage, "" before the first pass.

    ``key``: key of the list of names of the lattice.
    """

    def __init__(self, key: str) -> None:
        self.bucket = ""
        self._list_key = key
        self._prefix = f"{key}-"
        self._kept: dict[str, _Kept] = {}
        self._listed: frozenset[str] | None = None
        self._key_taken = False
        self._former: set[str] = set()
        self._seen: set[str] = set()
        self._bytes = self._models = 0
        self._overflowed = False

    def begin(self, bucket: str) -> None:
        """Start a pass over all entries of a bucket; drops the entries of another bucket, and after an overflow all."""
        if bucket != self.bucket or self._overflowed:
            self._former |= set(self.names())
            self._kept.clear()
            self._bytes = self._models = 0
            self._listed, self._overflowed = None, False
        self.bucket = bucket
        self._seen = set()

    def take(self, entry: Entry) -> set[str]:
        """Process an entry; return the names of applications that may have changed.

        Raises:
            LatticeDataError: its value is invalid; the message names the field.
            TooManyError: the entry exceeds the limits.
        """
        if entry.key == self._list_key:
            return self._take_list(entry)
        if not entry.key.startswith(self._prefix):
            return set()
        return self._take_model(entry)

    def complete(self) -> set[str]:
        """End a pass at the end of the stream: drop the entries that it did not contain, and return their names."""
        lost = {key for key in self._kept if key not in self._seen}
        for key in lost:
            self._drop(key)
        names = {key.removeprefix(self._prefix) for key in lost}
        if self._list_key not in self._seen and self._listed is not None:
            names |= self._listed
            self._listed = None
        return names

    def find(self, name: str) -> StoredModel | None:
        """Return an application, None if it does not exist."""
        kept = self._kept.get(self._prefix + name)
        return kept.model if kept is not None and kept.model is not None and kept.model.name == name else None

    def absence(self, name: str) -> AbsenceReason:
        """Return the reason of a missing application.

        The list may be older than the purge, because wadm writes the list first. Both are in one stream and are read in
        its order, so the cached list belongs to that purge or is newer.
        """
        kept = self._kept.get(self._prefix + name)
        if kept is not None and kept.purged and self._listed is not None and name not in self._listed:
            return AbsenceReason.DELETED
        return AbsenceReason.LOST if self._listed is None or name in self._former else AbsenceReason.UNKNOWN

    def listed(self, name: str) -> bool:
        """Return whether the list of names contains an application; True if another lattice uses the key of the list.

        wadm writes the entry, then the list, and stops retrying the list after three conflicts with other writes.
        """
        return self._key_taken or (self._listed is not None and name in self._listed)

    def names(self) -> Collection[str]:
        """Return the names of all applications."""
        return [kept.model.name for kept in self._kept.values() if kept.model is not None]

    def _take_list(self, entry: Entry) -> set[str]:
        self._seen.add(entry.key)
        before, self._key_taken = self._listed, False
        if entry.value is None:
            self._listed = None
        else:
            value = decoded(entry.value)
            if isinstance(value, dict):
                self._listed, self._key_taken = None, True  # of a lattice whose name is a part of the name of this one
            elif isinstance(value, list) and all(isinstance(name, str) for name in value):
                self._listed = frozenset(value)
            else:
                raise LatticeDataError(f"entry {entry.key} is not a list of names")
        return set((before or frozenset()) ^ (self._listed or frozenset()))

    def _take_model(self, entry: Entry) -> set[str]:
        self._seen.add(entry.key)
        name = entry.key.removeprefix(self._prefix)
        former = self._kept.get(entry.key)
        if former is not None and former.sequence == entry.sequence:
            return set()
        if entry.value is None:
            self._keep(entry, _Kept(entry.sequence, purged=True))
            return {name}
        value = decoded(entry.value)
        if isinstance(value, list):  # the list of a lattice whose name starts with the name of this one
            self._keep(entry, _Kept(entry.sequence, purged=False))
            return {name}
        model = read_stored(value, entry)
        ours = model if model.name == name else None
        size = len(entry.value) if ours is not None else 0
        self._keep(entry, _Kept(entry.sequence, purged=False, model=ours, size=size))
        if ours is not None:
            self._former.discard(name)
        return {name}

    def _keep(self, entry: Entry, kept: _Kept) -> None:
        self._drop(entry.key)
        self._kept[entry.key] = kept
        self._bytes += kept.size
        self._models += kept.model is not None
        if self._models > MODELS_MOST or self._bytes > BYTES_MOST or len(self._kept) > KEYS_MOST:
            self._overflowed = True
            raise TooManyError(
                f"the wadm storage of this lattice exceeds {MODELS_MOST:,} applications, {BYTES_MOST // 2**20} MiB "
                f"of their versions, or {KEYS_MOST:,} keys: delete versions or applications, or use two lattices"
            )

    def _drop(self, key: str) -> None:
        if (former := self._kept.pop(key, None)) is not None:
            self._bytes -= former.size
            self._models -= former.model is not None


def read_stored(value: object, entry: Entry) -> StoredModel:
    """Return the application of an entry.

    Raises:
        LatticeDataError: the value is not an application.
    """
    if not isinstance(value, dict) or not isinstance(value.get("manifests"), dict) or not value["manifests"]:
        raise LatticeDataError(f"entry {entry.key} is not an application with manifests")
    manifests: Mapping[str, Any] = value["manifests"]
    if not all(isinstance(manifest, dict) for manifest in manifests.values()):
        raise LatticeDataError(f"entry {entry.key} has a manifest that is not a map")
    require_shallow(manifests, f"entry {entry.key}")
    newest = list(manifests.values())[-1].get("metadata")
    if not isinstance(newest, dict):
        raise LatticeDataError(f"entry {entry.key} has a manifest without `metadata`")
    deployed = text(value, "deployed_version")
    versions = tuple((version, StoredManifest.of(manifests[version])) for version in _kept(list(manifests), deployed))
    return StoredModel(text(newest, "name", required=True), versions, deployed, entry.sequence)


def _kept(versions: list[str], deployed: str) -> list[str]:
    """Return the newest versions and the deployed version."""
    kept = versions[-VERSIONS_KEPT:]
    return [version for version in versions[: -len(kept)] if version == deployed] + kept
