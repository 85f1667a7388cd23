"""Deliveries to a guest in one turn of its controller, and their results. Plain data.

Created by ``delivery_selection`` and ``lifecycle``, read by ``outcomes``. Invariant: each delivered turn is in
``done``, ``rest`` or ``later``, or is ``faulted``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller_host.domain.keys import ObjectKey
from controller_host.domain.results import Result
from controller_host.guest.faults import GuestFault
from controller_host.guest.refusals import ModuleRefused
from controller_host.scheduler.turns import Turn


class NotPrepared(Exception):  # noqa: N818 - named after the outcome
    """A start lacks its input: the module's bytes if ``module``, otherwise the input of ``init``."""

    def __init__(self, *, module: bool) -> None:
        self.module = module
        super().__init__("module" if module else "init")


class StartFailed(Exception):  # noqa: N818 - as above
    """``init`` or ``migrate`` of the controller returned an error."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A key to call for, and its object as JSON; None: deleted. ``version``: ``<uid>/<resourceVersion>``, or ""."""

    turn: Turn[ObjectKey]
    item: bytes | None = field(repr=False)
    version: str


@dataclass(slots=True)
class Served:
    """Results of deliveries. ``rest``: turns without a call; ``cold``: the guest started cold, all keys are new."""

    done: list[tuple[Turn[ObjectKey], Result]] = field(default_factory=list)
    rest: list[Turn[ObjectKey]] = field(default_factory=list)
    cold: bool = False
    fault: GuestFault | None = None
    faulted: Turn[ObjectKey] | None = None
    """Turn of the call with the fault; None: the fault was in the start."""
    missing: NotPrepared | None = None
    """The controller has to be prepared again."""
    refused: ModuleRefused | None = None
    """Rejection of the module at its start."""
    abi: int | None = None
    """ABI version of the module, if it was started cold."""
    later: list[Turn[ObjectKey]] = field(default_factory=list)
    unwritten: str = ""
    """Error of recording the keys in ``later`` on the disk, which has to precede their delivery."""
    unwilling: str = ""
    """Error that the controller returned at its start."""
    to_disk: bool | None = None
    """Result of the suspension right after the calls; None: it was not suspended."""

    @property
    def is_settled(self) -> bool:
        """True if all keys were called for without a cold start, and no key requested an immediate next call."""
        if self.cold or self.rest or self.later:
            return False
        return bool(self.done) and all(result.again is None or result.again > 0 for _, result in self.done)
