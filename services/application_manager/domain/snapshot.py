"""Inputs of the decision about one key.

Pure. Made by ``gather``, read by ``decide`` and ``conditions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from application_manager.domain.progress import SETTLED, Progress
from application_manager.domain.sides import Absence, Model, Object, Standing
from application_manager.domain.views import ApplicationView, Key
from application_manager.timings import Timings
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import StoredModel

_NO_KEY: Final = Key("", "")


class Duty(StrEnum):
    """Duty of this process for applications."""

    RECONCILE = "Reconcile"
    STAND_BY = "StandBy"
    """wasmcloud-operator is active, or the API server does not serve Applications, so that they are unknown."""
    REMOVE_FINALIZERS = "RemoveFinalizers"
    """The service is to be uninstalled."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One application at one moment.

    ``now``: Unix seconds by the API server's clock; ``monotonic``: seconds of the clock of ``progress``. ``tombstone``:
    a user removed the finalizer of its object, and wadm's model is unchanged since. ``progress``: includes the
    observations of this moment. ``view``: its object, None if there is none; ``others``: newer objects that name the
    same application. ``model`` and ``wadm_status``: the last state and status of wadm, for users, also while it does
    not answer. ``home``: the namespace for a new object of wadm's model, "" for none. ``reason``: cause of a wait, as a
    message for users.
    """

    object: Object | None
    wadm: Model | Absence
    standing: Standing = Standing.OWNED
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
    wadm_status: Status | None = None
    home: str = ""
    reason: str = ""

    @property
    def unsettled(self) -> float:
        """Seconds for which a version that was put just now may still be deployed."""
        return self.progress.unsettled(self.monotonic, self.timings)
