"""One controller as the host has it: what it is, what waits for it, how it fares.

Called by ``hosting`` and ``status``, in the event loop; its ``life`` belongs to the thread that serves it. Invariant:
what is here can be lost: it is made again from the object, the caches and the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller_host.domain.accounts import Account
from controller_host.domain.keys import ObjectKey
from controller_host.domain.views import ControllerView, Wanted
from controller_host.scheduler.lifecycle import GuestLifecycle
from controller_host.scheduler.turns import Allowance, WorkQueue
from controller_host.state.progress import KnownModule
from trellis.limits.backoff import Backoff
from trellis.limits.token_bucket import TokenBucket

NEW: Final = "Pending"
LINES_PER_SECOND: Final = 0.1
LINES_AT_ONCE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something does not hold: reason of a condition, message for users."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What ended a guest last, or what it said that failed; ``time`` in RFC 3339."""

    kind: str
    message: str
    time: str


@dataclass(slots=True)
class Hosted:
    """A controller. Times are monotonic seconds."""

    view: ControllerView
    account: Account
    life: GuestLifecycle
    wanted: Wanted | None = None
    module: KnownModule | None = None
    agenda: WorkQueue[ObjectKey] = field(default_factory=WorkQueue)
    bucket: TokenBucket = field(default_factory=lambda: TokenBucket(0))
    ready: bool = False
    """What is to run is prepared."""
    fetch: bool = False
    """The module's bytes are needed, although its checksum is known."""
    listed: bool = False
    """All keys that are news to it wait in its agenda."""
    evict: bool = False
    """Memory is short: it is to go to disk."""
    no_room: int = 0
    """The bytes of memory that it needs, if it was given up because it could be in neither memory nor disk."""
    fetching: float | None = None
    """Since when what is to run is being fetched."""
    not_to_disk_before: float = 0.0
    """When to try again to put it there: the disk did not take it, and takes others perhaps."""
    not_taken: int = 0
    """How often in a row the disk did not take it."""
    not_before: float = 0.0
    held_until: float = 0.0
    """When to ask again whether it may be told of what waits."""
    look_at: float | None = None
    """When to look again at what the spec refers to."""
    used_at: float = 0.0
    accounted_at: float = 0.0
    """``used_at`` when its memory was counted last."""
    failures: int = 0
    """Starts and calls that ended it in a row, none between that was good."""
    refused: Trouble | None = None
    """Why it is not accepted."""
    unfit: str = ""
    """SHA-256 of the module that was refused as it was started: it is the same until it is seen to start."""
    stopped: Trouble | None = None
    """Why it does not run, although it is accepted."""
    fault: Fault | None = None
    busy: bool = False
    said: Allowance = field(default_factory=lambda: Allowance(TokenBucket(LINES_PER_SECOND, LINES_AT_ONCE)))
    """Lines of the log about what it failed on."""

    def brought_to_disk(self, now: float, backoff: Backoff, *, taken: bool) -> None:
        """Note whether the disk took it: who is too large for it would else write to the last byte each second."""
        self.not_taken = 0 if taken else self.not_taken + 1
        self.not_to_disk_before = 0.0 if taken else now + backoff.bound(self.not_taken)

    def untold(self, now: float, seconds: float) -> float | None:
        """Return when people are to be told that its module is being fetched, so long after that began; None: now."""
        left = (now if self.fetching is None else self.fetching) + seconds - now
        return left if left > 0 else None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.view.key

    @property
    def pinned(self) -> bool:
        """Whether it is never suspended."""
        return self.wanted is not None and self.wanted.suspend_after is None
