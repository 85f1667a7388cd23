"""All that one run of a key decides on.

Pure. Made by ``gather``, read by ``decide`` and ``conditions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from application_manager.domain.placement import Key
from application_manager.domain.progress import SETTLED, Progress
from application_manager.domain.sides import Absence, Model, Object, Standing
from application_manager.domain.views import ApplicationView
from application_manager.timings import Timings
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import StoredModel

_NO_KEY: Final = Key("", "")


class Duty(StrEnum):
    """What this process does about applications."""

    RECONCILE = "Reconcile"
    STAND_BY = "StandBy"
    """wasmcloud-operator is active, or the API server does not serve Applications: which there are is not known."""
    REMOVE_FINALIZERS = "RemoveFinalizers"
    """The service is to be uninstalled."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One application at one moment.

    ``now``: Unix seconds by the API server's clock; ``monotonic``: seconds of the clock of ``progress``.
    ``tombstone``: its object was let go by force, and wadm's model is the one of then. ``progress``: with what this
    moment shows. ``view``: its object, None if there is none; ``others``: newer objects that name the same application.
    ``model`` and ``said``: what wadm has and last said, for users, also while it does not answer. ``home``: the
    namespace in which an object for wadm's model is made, "" for none. ``why``: what is to be said of why nothing is
    done.
    """

    object: Object | None
    wadm: Model | Absence
    standing: Standing = Standing.OURS
    now: float = 0.0
    tombstone: bool = False
    progress: Progress = SETTLED
    monotonic: float = 0.0
    timings: Timings = Timings()
    duty: Duty = Duty.RECONCILE
    key: Key = _NO_KEY
    view: ApplicationView | None = None
    others: tuple[ApplicationView, ...] = ()
    model: StoredModel | None = None
    said: Status | None = None
    home: str = ""
    why: str = ""

    @property
    def unsettled(self) -> float:
        """For how many seconds more a version that was put just now may be deployed."""
        return self.progress.unsettled(self.monotonic, self.timings)
