"""What application_manager may do about one application; each says why, for programs and for people.

Pure. Made by ``decide``. Invariant: an action that was carried out and forgotten is harmless when it is made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from application_manager.domain.snapshot import Base, Side


class Reason(StrEnum):
    """Why; the reason of a condition or an Event."""

    APPLIED = "Applied"
    RESTORED = "Restored"
    FROM_WADM = "FromWadm"
    OVERRIDDEN = "Overridden"
    SYNCED = "Synced"
    DELETED = "Deleted"
    DELETED_IN_WADM = "DeletedInWadm"
    LET_GO = "LetGo"
    NO_LATTICE = "NoLattice"
    WADM_AWAY = "WadmAway"
    READ_ONLY = "ReadOnly"
    CONTENDED = "Contended"
    TOMBSTONE = "Tombstone"
    DUPLICATE = "Duplicate"
    MASS_DELETION = "MassDeletion"
    WRITE_REFUSED = "WriteRefused"


@dataclass(frozen=True, slots=True)
class Said:
    """Why something is done, or is not."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Put our finalizer on the object: before anything of it is in wadm."""

    said: Said


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go. ``tombstone``: what wadm may still have of it must not come back as if wash had put it."""

    said: Said
    tombstone: bool = False


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Make the object show this version of wadm's."""

    said: Said
    version: str


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """Give the object the manifest of this version of wadm's, and with the same write the mark that we did."""

    said: Said
    version: str


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object, and let it go."""

    said: Said


@dataclass(frozen=True, slots=True)
class Put:
    """Store the object's manifest as a version."""

    said: Said
    version: str


@dataclass(frozen=True, slots=True)
class Deploy:
    """Deploy a version."""

    said: Said
    version: str


@dataclass(frozen=True, slots=True)
class Undeploy:
    """Take the application off its hosts."""

    said: Said


@dataclass(frozen=True, slots=True)
class DeleteModel:
    """Delete the application with all its versions from wadm."""

    said: Said


@dataclass(frozen=True, slots=True)
class Record:
    """Write to the object's status what both sides have now."""

    said: Said
    base: Base


Action = (
    AddFinalizer
    | RemoveFinalizer
    | CreateObject
    | WriteSpec
    | DeleteObject
    | Put
    | Deploy
    | Undeploy
    | DeleteModel
    | Record
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A change that lost because both sides had changed, and wadm's version in which it can be read ("" if none)."""

    side: Side
    version: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, in order; then it is looked again, until there is nothing but to record, or to wait.

    ``waits``: why nothing is done although something is to be. ``winner``: whose change the other side is given.
    ``again``: in how many seconds to look, whatever happens.
    """

    actions: tuple[Action, ...] = ()
    waits: Said | None = None
    winner: Side | None = None
    lost: Lost | None = None
    again: float | None = None
