"""The interface of the application storage of one lattice.

Pure. Implemented by ``bucket`` and ``listing``. Out: a model by name, the reason why a name is missing, and the age of
the data. Called by services that manage applications. Invariants: a lost connection removes nothing; only
``AbsenceReason.DELETED`` means that an application was deleted (ADR 0041, rule 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

import orjson

from trellis.lattice.domain.replies import Status
from trellis.limits.compact import compact


class AbsenceReason(StrEnum):
    """Reason of a name without a model.

    ``DELETED``: the storage of wadm has its deletion. ``LOST``: the storage was replaced, or lost its list of
    names. ``UNKNOWN``: it never existed, its entry was lost, or the NATS user has no permission to read the storage.
    """

    DELETED = "Deleted"
    LOST = "Lost"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest as JSON: parsed, it would need seven times the memory, and most versions are never read.

    Keys are sorted, because wadm does not keep their order. ``spec``: digest of the ``spec``, empty without one.
    """

    json: bytes
    spec: bytes

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self:
        """Return the stored form of a manifest, which must be valid JSON."""
        spec = manifest.get("spec")
        if spec is None:
            return cls(compact(manifest, orjson.OPT_SORT_KEYS), b"")
        canonical = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        return cls(compact(manifest, orjson.OPT_SORT_KEYS), hashlib.blake2b(canonical, digest_size=16).digest())

    def read(self) -> dict[str, Any]:
        """Return the manifest."""
        found: dict[str, Any] = orjson.loads(self.json)
        return found


@dataclass(frozen=True, slots=True)
class StoredModel:
    """An application in wadm.

    ``versions``: name and manifest, the oldest first; ``deployed``: "" if none is; ``revision``: the sequence of its
    entry, 0 if unknown.
    """

    name: str
    versions: tuple[tuple[str, StoredManifest], ...]
    deployed: str
    revision: int


class ModelStore(Protocol):
    """The applications of one lattice."""

    @property
    def lattice(self) -> str:
        """Name of the lattice."""

    @property
    def bucket(self) -> str:
        """Creation time of the storage, which distinguishes it from a lost one; "" if unknown."""

    @property
    def synced_at(self) -> float | None:
        """Time of the last complete read, in Unix seconds; None while the data may be incomplete."""

    @property
    def reason(self) -> str:
        """The reason why the data is incomplete, or deletions cannot be detected, for users; "" if neither applies."""

    @property
    def unavailable(self) -> str:
        """The reason why wadm does not answer, for users, "" if it does; its last statuses may then be outdated."""

    def find(self, name: str) -> StoredModel | None:
        """Return an application by name, None if it does not exist."""

    def absence(self, name: str) -> AbsenceReason:
        """Return the reason of a missing application."""

    def listed(self, name: str) -> bool:
        """Return whether the list of names in wadm contains an application; ``model.list`` answers from that list."""

    def names(self) -> Collection[str]:
        """Return the names of all applications."""

    def status(self, name: str) -> Status | None:
        """Return the last status of the deployed version of an application, None if there is none."""
