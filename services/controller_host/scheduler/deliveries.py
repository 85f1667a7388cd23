"""What is brought to a guest in one turn of its controller, and what became of it. Plain data.

Made by ``news`` and ``lifecycle``, read by ``outcomes``. Invariant: each turn that was brought is in ``done``, in
``rest`` or ``later``, or is the one in which the guest ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller_host.domain.keys import ObjectKey
from controller_host.domain.results import Result
from controller_host.guest.faults import GuestFault
from controller_host.guest.refusals import ModuleRefused
from controller_host.scheduler.turns import Turn


class NotPrepared(Exception):  # noqa: N818 - says what is the matter
    """What a start needs is not there any more; ``module``: that is the module's bytes, else what ``init`` is told."""

    def __init__(self, *, module: bool) -> None:
        self.module = module
        super().__init__("module" if module else "init")


class StartFailed(Exception):  # noqa: N818 - as above
    """The controller itself says that it cannot start: the error that ``init`` or ``migrate`` returned."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One key to call for, and its object as JSON; None: it is gone. ``version``: ``<uid>/<resourceVersion>``, ""."""

    turn: Turn[ObjectKey]
    item: bytes | None = field(repr=False)
    version: str


@dataclass(slots=True)
class Served:
    """What became of deliveries. ``rest``: those not called for; ``cold``: the guest began again, all keys are news."""

    done: list[tuple[Turn[ObjectKey], Result]] = field(default_factory=list)
    rest: list[Turn[ObjectKey]] = field(default_factory=list)
    cold: bool = False
    fault: GuestFault | None = None
    faulted: Turn[ObjectKey] | None = None
    """Which call the fault was in; None: it was in the start."""
    missing: NotPrepared | None = None
    """It has to be prepared again."""
    refused: ModuleRefused | None = None
    """Why the module is not run: what only showed when it was started."""
    abi: int | None = None
    """The version of the ABI that the module is made for, if it was started."""
    later: list[Turn[ObjectKey]] = field(default_factory=list)
    unwritten: str = ""
    """Those that the guest may not be told of before the disk has taken note of them, and why that does not."""
    unwilling: str = ""
    """Why the controller says that it cannot start."""
    to_disk: bool | None = None
    """Whether the disk took it right after its calls; None: it was not brought there."""

    @property
    def is_settled(self) -> bool:
        """Whether all was called for, by a guest that did not restarts, and none of it wants another call at once."""
        if self.cold or self.rest or self.later:
            return False
        return bool(self.done) and all(result.again is None or result.again > 0 for _, result in self.done)
