"""The two sides of one application, its object in Kubernetes and its model in wadm, and their last common state.

Pure values. Made by ``views`` and ``gather``, read by ``decide``. Digests are those of
``trellis.lattice.domain.projection``: manifests with equal digests are equivalent for wadm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

OVERRIDDEN: Final = "overridden-"
"""Prefix of versions that preserve an overridden manifest; they are never shown as the application's newest."""


class Side(StrEnum):
    """The sides of an application."""

    KUBERNETES = "Kubernetes"
    WADM = "wadm"


class Absence(StrEnum):
    """The reason for a missing model. ``DELETED``: its deletion is in wadm's storage; ``LOST``: the storage is
    new.
    """

    DELETED = "Deleted"
    LOST = "Lost"
    UNAVAILABLE = "Unavailable"


class Standing(StrEnum):
    """Permission of this cluster to write to the lattice."""

    OWNED = "Owned"
    OWNED_BY_OTHER = "OwnedByOther"
    NO_LATTICE = "NoLattice"


@dataclass(frozen=True, slots=True)
class Base:
    """The last common state of both sides. ``undeploy``: the object requested no deployment; ``newest``: in wadm.

    ``serial``: number of earlier bases of the object. ``bucket``: identity of wadm's storage. ``revision``: of wadm's
    entry in it; a later revision may have the same base.
    """

    digest: str
    version: str
    deployed: bool
    newest: str
    undeploy: bool = False
    serial: int = 0
    bucket: str = ""
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Win:
    """A change of one side that the other side received; ``at`` in Unix seconds."""

    side: Side
    at: float


@dataclass(frozen=True, slots=True)
class Model:
    """wadm's side. ``versions``: name and digest, the oldest first, at least one; ``deployed``: "" if none is.

    ``bucket``: identity of wadm's storage; a storage that was lost and re-created is another one. ``listed``: False if
    wadm's list of names lacks it for longer than a write lasts: `wash app list` does not show it. ``revision``: of its
    entry; it grows with each write of wadm.
    """

    versions: tuple[tuple[str, str], ...]
    deployed: str = ""
    bucket: str = ""
    listed: bool = True
    revision: int = 0

    def restored(self, base: Base) -> bool:
        """Return whether wadm's storage is older than the last common state: it was restored from a backup."""
        return base.bucket == self.bucket and self.revision < base.revision

    @property
    def digests(self) -> dict[str, str]:
        """Digest by version."""
        return dict(self.versions)

    @property
    def newest(self) -> str:
        """The version that was put last, except for those that preserve an overridden manifest."""
        names = [name for name, _ in self.versions]
        return next((name for name in reversed(names) if not name.startswith(OVERRIDDEN)), names[-1])

    def shown(self, base: Base | None) -> str:
        """Return the version for Kubernetes: the deployed one, else the one shown before, else the newest."""
        if self.deployed in self.digests:
            return self.deployed
        if base is not None and base.newest == self.newest and self.digests.get(base.version) == base.digest:
            return base.version
        return self.newest


@dataclass(frozen=True, slots=True)
class Object:
    """The side of Kubernetes.

    ``version``: value of the annotation, "" if there is none. ``undeploy``: the annotation requests no deployment.
    ``others``: a field manager other than Trellis manages ``spec``. ``finalizer``: that of Trellis is set. ``written``:
    digest of the last manifest from wadm, and serial of the base at that time; it is not a change of the object,
    although it differs from the base.
    """

    digest: str
    version: str = ""
    undeploy: bool = False
    others: bool = True
    finalizer: bool = True
    deleting: bool = False
    base: Base | None = None
    wins: tuple[Win, ...] = ()
    written: tuple[str, int] | None = None

    @property
    def changed(self) -> bool:
        """True if the object differs from the last common state."""
        if self.base is None:
            return self.others
        ours = (self.digest, self.base.serial) == self.written
        return self.undeploy != self.base.undeploy or (self.digest != self.base.digest and not ours)

    @property
    def deployed(self) -> bool:
        """True if the object requests a deployment; an unchanged object keeps the state of its base."""
        return self.base.deployed if self.base is not None and not self.changed else not self.undeploy
