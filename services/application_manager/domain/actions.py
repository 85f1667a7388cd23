"""What application_manager may do about one application; each says why, for programs and for users.

Pure. Made by ``decide``. Invariant: an action that was carried out and forgotten is harmless when it is made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from application_manager.domain.sides import Base, Side
from application_manager.domain.views import ApplicationView
from trellis.lattice.domain.replies import Refusal


class Reason(StrEnum):
    """Why; the reason of a condition or an Event."""

    APPLIED = "Applied"
    RESTORED = "Restored"
    FROM_WADM = "FromWadm"
    OVERRIDDEN = "Overridden"
    SYNCED = "Synced"
    DELETED = "Deleted"
    DELETED_IN_WADM = "DeletedInWadm"
    FINALIZER_REMOVED = "FinalizerRemoved"
    NO_LATTICE = "NoLattice"
    WADM_AWAY = "WadmUnavailable"
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
class AcceptRemoval:
    """Take note that a user removed our finalizer from ``view``, whose object is deleted.

    ``revision``: of wadm's entry that must not come back as if wash had put it; None if wadm has none.
    """

    said: Said
    view: ApplicationView
    revision: int | None


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


AskOfWadm = Put | Deploy | Undeploy | DeleteModel
Action = AddFinalizer | RemoveFinalizer | AcceptRemoval | CreateObject | WriteSpec | DeleteObject | AskOfWadm | Record


def asks(actions: Iterable[Action]) -> bool:
    """Return whether any of these actions is a request to wadm."""
    return any(isinstance(action, AskOfWadm) for action in actions)


@dataclass(frozen=True, slots=True)
class Lost:
    """A change that lost because both sides had changed, and wadm's version in which it can be read ("" if none)."""

    side: Side
    version: str


@dataclass(frozen=True, slots=True)
class Refused:
    """What wadm refused, or NATS before it, and of which manifest.

    ``again``: monotonic seconds from which it is worth another try; ``times``: refusals in a row.
    """

    digest: str
    undeploy: bool
    refusal: Refusal
    message: str
    again: float = 0.0
    times: int = 1

    @property
    def words(self) -> str:
        """Return the refusal with whose it is."""
        return self.message if self.refusal is Refusal.TOO_LARGE else f"wadm: {self.message}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, in order; then it is decided again, until there is nothing but to record, or to wait.

    ``waits``: why nothing is done although something is to be. ``winner``: whose change the other side is given.
    ``again``: in how many seconds to decide again, whatever happens. ``refused``: wadm refused these actions before, so
    that is reported in place of carrying them out. ``silent``: nothing is reported. ``duplicates``: newer objects that
    name the same application, and what is to be done about each.
    """

    actions: tuple[Action, ...] = ()
    waits: Said | None = None
    winner: Side | None = None
    lost: Lost | None = None
    again: float | None = None
    refused: Refused | None = None
    silent: bool = False
    duplicates: tuple[tuple[ApplicationView, Decision], ...] = ()


def wait(reason: Reason, message: str, again: float | None = None) -> Decision:
    """Return the decision to do nothing although something is to be done."""
    return Decision(waits=Said(reason, message), again=again)
