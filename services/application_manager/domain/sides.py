"""The two sides of one application, its object in Kubernetes and its model in wadm, and what both last had.

Pure values. Made by ``views`` and ``gather``, read by ``compare``. A digest is that of
``trellis.lattice.domain.projection``: two manifests of one digest mean the same to wadm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

OVERRIDDEN: Final = "overridden-"
"""Prefix of versions in which a manifest that lost can be read; they are never shown as the application's newest."""


class Side(StrEnum):
    """Where an application is."""

    KUBERNETES = "Kubernetes"
    WADM = "wadm"


class Absence(StrEnum):
    """Why there is no model. ``GONE``: it was deleted, which wadm's storage proves; ``LOST``: the storage is new."""

    GONE = "Gone"
    LOST = "Lost"
    AWAY = "Away"


class Standing(StrEnum):
    """Whether this cluster may write to the lattice."""

    OURS = "Ours"
    OTHERS = "Others"
    NO_LATTICE = "NoLattice"


@dataclass(frozen=True, slots=True)
class Base:
    """What both sides last had. ``undeploy``: the object asked then for it not to run; ``newest``: wadm's version.

    ``serial``: how many bases of the object there were before. ``bucket``: which storage of wadm's it is about.
    ``revision``: of wadm's entry in it; a later one need not be another base.
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
    """A change that one side made and the other was given, in Unix seconds."""

    side: Side
    at: float


@dataclass(frozen=True, slots=True)
class Model:
    """wadm's side. ``versions``: name and digest, the oldest first, at least one; ``deployed``: "" if none is.

    ``bucket``: which storage of wadm's it is in: one that was lost and is made again is another. ``listed``: False if
    wadm's list of names lacks it for longer than a write takes: `wash app list` does not show it. ``revision``: of its
    entry; each write of wadm has a higher one.
    """

    versions: tuple[tuple[str, str], ...]
    deployed: str = ""
    bucket: str = ""
    listed: bool = True
    revision: int = 0

    def restored(self, base: Base) -> bool:
        """Return whether wadm's storage is older than what both sides last had: it was restored from a backup."""
        return base.bucket == self.bucket and self.revision < base.revision

    @property
    def digests(self) -> dict[str, str]:
        """Digest by version."""
        return dict(self.versions)

    @property
    def newest(self) -> str:
        """The version that was put last, but for those that only keep what lost."""
        names = [name for name, _ in self.versions]
        return next((name for name in reversed(names) if not name.startswith(OVERRIDDEN)), names[-1])

    def shown(self, base: Base | None) -> str:
        """Return the version that Kubernetes is to show: the deployed one, else what was shown, else the newest."""
        if self.deployed in self.digests:
            return self.deployed
        if base is not None and base.newest == self.newest and self.digests.get(base.version) == base.digest:
            return base.version
        return self.newest


@dataclass(frozen=True, slots=True)
class Object:
    """Kubernetes' side.

    ``version``: what the annotation asks for, "" if there is none. ``undeploy``: it is not to run. ``others``: somebody
    but us manages ``spec``. ``finalizer``: ours is on it. ``written``: what we gave it from wadm last, as the digest
    and the serial of the base of then: that is no change of its own, although it is not what both sides last had.
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
        """Whether it differs from what both sides last had."""
        if self.base is None:
            return self.others
        ours = (self.digest, self.base.serial) == self.written
        return self.undeploy != self.base.undeploy or (self.digest != self.base.digest and not ours)

    @property
    def deployed(self) -> bool:
        """Whether it is to run: applied it is, unless it says otherwise; unchanged it stays as it was."""
        return self.base.deployed if self.base is not None and not self.changed else not self.undeploy
