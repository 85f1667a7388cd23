"""Actions of application_manager on one application; each has a reason for programs and a message for users.

Pure. Made by ``decide``. Invariant: a repetition of an action after the loss of the cache is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from application_manager.domain.sides import Base, Side
from application_manager.domain.views import ApplicationView
from trellis.lattice.domain.replies import Refusal


class Reason(StrEnum):
    """Reason of an action, a condition or an Event."""

    APPLIED = "Applied"
    RESTORED = "Restored"
    FROM_WADM = "FromWadm"
    OVERRIDDEN = "Overridden"
    SYNCED = "Synced"
    DELETED = "Deleted"
    DELETED_IN_WADM = "DeletedInWadm"
    FINALIZER_REMOVED = "FinalizerRemoved"
    NO_LATTICE = "NoLattice"
    WADM_UNAVAILABLE = "WadmUnavailable"
    READ_ONLY = "ReadOnly"
    CONTENDED = "Contended"
    TOMBSTONE = "Tombstone"
    DUPLICATE = "Duplicate"
    MASS_DELETION = "MassDeletion"
    WRITE_REFUSED = "WriteRefused"


@dataclass(frozen=True, slots=True)
class Announcement:
    """Reason and message of an action, or of a wait."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add the finalizer to the object, before wadm has anything of it."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the finalizer. ``tombstone``: a model left in wadm must not come back as an application of wash."""

    announcement: Announcement
    tombstone: bool = False


@dataclass(frozen=True, slots=True)
class AcceptRemoval:
    """Record that a user removed the finalizer from ``view``, whose object is deleted.

    ``revision``: of wadm's entry that must not come back as an application of wash; None if wadm has none.
    """

    announcement: Announcement
    view: ApplicationView
    revision: int | None


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Create an object with this version of wadm."""

    announcement: Announcement
    version: str


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """Write the manifest of this version of wadm to the object, with the last-synced annotation in the same write."""

    announcement: Announcement
    version: str


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Remove the finalizer from the object, and delete it."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class Put:
    """Store the manifest of the object in wadm as a version."""

    announcement: Announcement
    version: str


@dataclass(frozen=True, slots=True)
class Deploy:
    """Deploy a version in wadm."""

    announcement: Announcement
    version: str


@dataclass(frozen=True, slots=True)
class Undeploy:
    """Undeploy the application in wadm."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class DeleteModel:
    """Delete the application with all its versions in wadm."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class Record:
    """Write the common state of both sides to the status of the object."""

    announcement: Announcement
    base: Base


AskOfWadm = Put | Deploy | Undeploy | DeleteModel
Action = AddFinalizer | RemoveFinalizer | AcceptRemoval | CreateObject | WriteSpec | DeleteObject | AskOfWadm | Record


def asks(actions: Iterable[Action]) -> bool:
    """Return whether any of these actions is a request to wadm."""
    return any(isinstance(action, AskOfWadm) for action in actions)


@dataclass(frozen=True, slots=True)
class Lost:
    """The overridden change of a conflict; ``version``: wadm's version that preserves it, "" if there is none."""

    side: Side
    version: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A rejection by wadm, or by NATS before it, and the digest of the rejected manifest.

    ``again``: earliest retry in monotonic seconds; ``times``: consecutive rejections.
    """

    digest: str
    undeploy: bool
    refusal: Refusal
    message: str
    again: float = 0.0
    times: int = 1

    @property
    def full_message(self) -> str:
        """Return the message, with wadm as the source unless NATS rejected the request."""
        return self.message if self.refusal is Refusal.TOO_LARGE else f"wadm: {self.message}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The next actions, in order; decisions continue until only a record or a wait remains.

    ``waits``: why nothing is done although the sides differ. ``winner``: the side whose change the other side receives.
    ``again``: seconds until the next decision at the latest. ``refused``: wadm rejected these actions before; this is
    reported and they are not executed. ``without_status``: nothing is reported. ``duplicates``: newer objects that name
    the same application, with the decision about each.
    """

    actions: tuple[Action, ...] = ()
    waits: Announcement | None = None
    winner: Side | None = None
    lost: Lost | None = None
    again: float | None = None
    refused: Refused | None = None
    without_status: bool = False
    duplicates: tuple[tuple[ApplicationView, Decision], ...] = ()


def wait(reason: Reason, message: str, again: float | None = None) -> Decision:
    """Return a decision without actions, with the reason of the wait."""
    return Decision(waits=Announcement(reason, message), again=again)
