"""The interface of the application storage of one lattice.

Pure. Implemented by ``bucket`` and ``listing``. Out: a model by name, the reason why a name is missing, and the age of
the data. Called by services that manage applications. Invariants: a lost connection removes nothing; only
``Proof.GONE`` means that an application was deleted (ADR 0041, rule 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

import orjson

from trellis.compact import compact
from trellis.lattice.domain.replies import Status


class Proof(StrEnum):
    """Why a name has no model.

    ``GONE``: it was deleted, and the storage proves it. ``LOST``: the storage is another than it was, or lost its list
    of names. ``UNKNOWN``: it was never there, its entry was lost, or this user may not read what would prove it.
    """

    GONE = "Gone"
    LOST = "Lost"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest as JSON: read, each would take seven times as much, and hardly one of all versions ever is.

    Keys are in order: wadm keeps none, and may store the same in another one each time. ``spec``: digest of what
    stands there; empty if nothing does.
    """

    json: bytes
    spec: bytes

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self:
        """Return that of a manifest, which JSON can hold."""
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
    """An application as wadm holds it.

    ``versions``: name and manifest, the oldest first; ``deployed``: "" if none is; ``revision``: the sequence of its
    entry, 0 if that is not known.
    """

    name: str
    versions: tuple[tuple[str, StoredManifest], ...]
    deployed: str
    revision: int


class ModelStore(Protocol):
    """The applications of one lattice."""

    @property
    def lattice(self) -> str:
        """Whose applications they are."""

    @property
    def bucket(self) -> str:
        """When the storage was made, which tells it from one that was lost before; "" if that is not known."""

    @property
    def synced_at(self) -> float | None:
        """When this was last known to be complete, in Unix seconds; None while it may not be."""

    @property
    def why(self) -> str:
        """Why it is not complete, or why deletions cannot be proved, for users; "" if neither is so."""

    @property
    def silent(self) -> str:
        """Why nobody answers for wadm, for users, "" if somebody does: what it said last may be old by now."""

    def find(self, name: str) -> StoredModel | None:
        """Return an application, None if there is none of this name."""

    def absence(self, name: str) -> Proof:
        """Return why there is no application of this name."""

    def listed(self, name: str) -> bool:
        """Return whether wadm's list of names has an application; wadm answers requests for all from that list."""

    def names(self) -> Collection[str]:
        """Return the names of all applications."""

    def status(self, name: str) -> Status | None:
        """Return what wadm last said of an application as it is deployed now, None if nothing was heard."""
