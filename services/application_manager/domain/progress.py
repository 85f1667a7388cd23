"""Progress of one application between reconciles of its key: the requests to wadm, and the end of each wait.

Pure. In: observations, decisions, requests, answers, reports. Out: the next progress; nothing changes in place. Stored
in ``cache``, one per key; read by ``gather`` and ``decide``. Invariant: its loss causes a repetition, and the case
of ADR 81. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from application_manager.domain.actions import (
    Action,
    AskOfWadm,
    Decision,
    DeleteModel,
    Deploy,
    Lost,
    Put,
    Reason,
    Refused,
    Undeploy,
    asks,
)
from application_manager.domain.sides import Base, Model, Object, Side
from application_manager.domain.views import ApplicationView
from application_manager.timings import Timings
from trellis.lattice.domain.replies import Refusal
from trellis.lattice.domain.store import StoredModel
from trellis.limits.backoff import Backoff

_LASTING: Final = (Refusal.REJECTED, Refusal.TOO_LARGE)
"""Refusals that only another manifest resolves."""

# The states of one application. The label of an arrow is the trigger of the transition.
#
#   SETTLED ── a side's change is decided, or wadm is asked ──> CHANGING ── both sides are equal, recorded ──> SETTLED
#
#              ┌── wadm acknowledges ──────> AWAITED ───── its storage shows it; `awaited` passed; no answer ──┐
#   CHANGING ──┼── wadm or NATS refuses ───> REFUSED ───── `again` passed; another manifest; nothing to ask ───┼──> as
#              └── wadm does not answer ───> UNAVAILABLE ─ anything else is reported ──────────────────────────┘  before
#
#   SETTLED ── wadm stores it and does not list it ─────────> UNLISTED ─── wadm lists it; a version is put ───> SETTLED
#   SETTLED ── a version is put beside the one that runs ───> UNDECIDED ── it runs; `settle` passed, recorded ─> SETTLED
#
#   any ── a user removes our finalizer, the object goes ──> FINALIZER_REMOVED ── its tombstone is stored ─> as before
#
# Several can hold: wadm acknowledges a version and refuses to deploy it. Then the state is the first of `State` that
# holds, and the next reconcile handles that one; the remaining states are kept until it has ended.


class State(StrEnum):
    """The states, in the order in which a reconcile handles them."""

    FINALIZER_REMOVED = "FinalizerRemoved"
    """Nothing else is decided until a tombstone keeps that application from coming back as one of wash."""
    AWAITED = "Awaited"
    """Nothing is decided: the storage does not show yet what wadm acknowledged (ADR 43)."""
    REFUSED = "Refused"
    """The rejection is reported, and the request is not sent to wadm at each event (ADR 43)."""
    UNAVAILABLE = "Unavailable"
    """Nothing can be decided; it is reported after ``Timings.unreported``."""
    CHANGING = "Changing"
    """The winner, and the version that wadm was asked to run, are kept until that is recorded (ADR 42, 81)."""
    UNLISTED = "Unlisted"
    """wadm may still write its list; after ``Timings.unlisted`` a further version makes it do so."""
    UNDECIDED = "Undecided"
    """The newer version may be deployed next, so it is not recorded as skipped (ADR 81)."""
    SETTLED = "Settled"


@dataclass(frozen=True, slots=True)
class Awaited:
    """The state that wadm acknowledged: a storage that shows it is up to date. None: unchanged by the request."""

    version: str | None
    deployed: str | None
    deleted: bool
    until: float

    def shown_by(self, model: StoredModel | None) -> bool:
        """Return whether a storage shows the acknowledged state."""
        if self.deleted or model is None:
            return self.deleted and model is None
        has = self.version is None or any(version == self.version for version, _ in model.versions)
        return has and self.deployed in {None, model.deployed}


_UNTOUCHED: Final = Awaited(None, None, deleted=False, until=0.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one application; each field belongs to the state with the same meaning.

    ``removed``: the object whose finalizer a user removed. ``unavailable_since``: wadm does not answer.
    ``winner`` and ``lost``: of the change in progress. ``requested``: the version that wadm was asked to run, "" for
    none, whether it did or not. ``unlisted_since``: wadm stores it and does not list it. ``newer``: the version that
    was put beside the running one, and since when.
    """

    removed: ApplicationView | None = None
    awaited: Awaited | None = None
    refused: Refused | None = None
    unavailable_since: float | None = None
    winner: Side | None = None
    lost: Lost | None = None
    requested: str | None = None
    unlisted_since: float | None = None
    newer: tuple[str, float] | None = None

    @property
    def state(self) -> State:
        """The state that the next reconcile handles; see the diagram."""
        changing = (self.winner, self.lost, self.requested) != (None, None, None)
        holds = {
            State.FINALIZER_REMOVED: self.removed is not None,
            State.AWAITED: self.awaited is not None,
            State.REFUSED: self.refused is not None,
            State.UNAVAILABLE: self.unavailable_since is not None,
            State.CHANGING: changing,
            State.UNLISTED: self.unlisted_since is not None,
            State.UNDECIDED: self.newer is not None,
        }
        return next((state for state, now in holds.items() if now), State.SETTLED)

    # Observed by a reconcile, before its decision.

    def storage_read(self, model: StoredModel | None, *, answered: bool, now: float) -> Progress:
        """Return the progress after a read of wadm's storage; ``answered``: False if it may be outdated."""
        awaited = self.awaited
        if awaited is None or (answered and now < awaited.until and not awaited.shown_by(model)):
            return self
        others = model is not None and model.deployed != self.requested  # another writer has sent a request to wadm
        return replace(self, awaited=None, requested=None if others else self.requested)

    def list_read(self, *, listed: bool, now: float) -> Progress:
        """Return the progress after a read of wadm's list of names."""
        since = now if self.unlisted_since is None else self.unlisted_since
        return replace(self, unlisted_since=None if listed else since)

    def newest_read(self, model: Model | None, base: Base | None, now: float) -> Progress:
        """Return the progress after a read of wadm's newest version; ``model``: None if absent or unanswered."""
        if model is None or model.newest in {model.deployed, "" if base is None else base.newest}:
            return replace(self, newer=None)
        same = self.newer is not None and self.newer[0] == model.newest
        return self if same else replace(self, newer=(model.newest, now))

    def removed_by_user(self, view: ApplicationView) -> Progress:
        """Return the progress after the deletion of an object whose finalizer a user removed."""
        return replace(self, removed=view)

    def removal_accepted(self, view: ApplicationView) -> Progress:
        """Return the progress after a tombstone for such an object; a later deletion of another object remains."""
        return replace(self, removed=None) if self.removed == view else self

    # Decisions, requests, answers.

    def refused_before(self, found: Object | None, actions: Iterable[Action]) -> Refused | None:
        """Return wadm's rejection of the requests in these actions; None if it did not reject them."""
        refused = self.refused
        if refused is None or found is None or not asks(actions):
            return None
        return refused if (refused.digest, refused.undeploy) == (found.digest, found.undeploy) else None

    def decided(self, found: Object | None, decision: Decision) -> Progress:
        """Return the progress after a decision about ``found``."""
        refused = self.refused_before(found, decision.actions)
        if decision.refused is not None:  # not executed
            return replace(self, refused=refused)
        return replace(self, refused=refused, winner=decision.winner or self.winner, lost=decision.lost or self.lost)

    def with_request(self, action: AskOfWadm) -> Progress:
        """Return the progress before a request is sent, as its answer may get lost."""
        match action:
            case Deploy(version=version):
                return replace(self, requested=version)
            case Undeploy():
                return replace(self, requested="")
            case Put() | DeleteModel():
                return self

    def acknowledged(self, action: AskOfWadm, until: float) -> Progress:
        """Return the progress after wadm acknowledged a request; its storage may lag until ``until``."""
        awaited = replace(self.awaited or _UNTOUCHED, until=until)
        match action:
            case Put(version=version):  # wadm has tried to list it: its list may show it with a delay
                return replace(self, awaited=replace(awaited, version=version), unlisted_since=None)
            case Deploy(version=version):
                return replace(self, awaited=replace(awaited, deployed=version))
            case Undeploy():
                return replace(self, awaited=replace(awaited, deployed=""))
            case DeleteModel():
                return replace(self, awaited=replace(_UNTOUCHED, deleted=True, until=until))

    def refused_as(
        self, found: Object | None, refusal: Refusal, message: str, now: float, timings: Timings
    ) -> Progress:
        """Return the progress after wadm or NATS rejected a request about ``found``, with a growing retry delay."""
        times = 1 if self.refused is None else self.refused.times + 1
        backoff = Backoff(2 * timings.refused_first, timings.refused_most)
        again = now + (backoff.cap if refusal in _LASTING else backoff.bound(times))
        digest, undeploy = ("", False) if found is None else (found.digest, found.undeploy)
        return replace(self, refused=Refused(digest, undeploy, refusal, message, again, times))

    # Reports on the object.

    def reporting(self, decision: Decision, now: float) -> Progress:
        """Return the progress at the time of a report: the outage of wadm continues, or is over."""
        if decision.waits is None or decision.waits.reason is not Reason.WADM_UNAVAILABLE:
            return replace(self, unavailable_since=None)
        return replace(self, unavailable_since=now if self.unavailable_since is None else self.unavailable_since)

    def recorded(self) -> Progress:
        """Return the progress after the common state of both sides was recorded."""
        return replace(self, winner=None, lost=None, requested=None)

    def deleted(self) -> Progress:
        """Return the progress after the application was deleted on both sides."""
        return Progress(removed=self.removed)

    # Remaining times, in seconds.

    def unreported(self, now: float, timings: Timings) -> float | None:
        """Return the seconds until an outage of wadm is reported; None if it is reported, or wadm answers."""
        if self.unavailable_since is None:
            return None
        left = self.unavailable_since + timings.unreported - now
        return left if left > 0 else None

    def listing_due(self, now: float, timings: Timings) -> float | None:
        """Return the seconds for which wadm may still list the application; None if no longer, or if it is listed."""
        if self.unlisted_since is None:
            return None
        left = self.unlisted_since + timings.unlisted - now
        return left if left > 0 else None

    def unsettled(self, now: float, timings: Timings) -> float:
        """Return the seconds for which the newer version may still be deployed; 0 if it may not."""
        return 0.0 if self.newer is None else max(0.0, self.newer[1] + timings.settle - now)


SETTLED: Final = Progress()
