"""State of one controller in the host: spec, waiting keys, errors.

Used by ``hosting`` and ``status``, in the event loop; its ``lifecycle`` belongs to the thread that serves it.
Invariant: the state can be lost: it is rebuilt from the object, the caches and the disk.
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
    """A problem: reason of a condition, and message for users."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The last fault of a guest, or the last error that it returned; ``time`` in RFC 3339."""

    kind: str
    message: str
    time: str


@dataclass(slots=True)
class Hosted:
    """A controller. Times are monotonic seconds."""

    view: ControllerView
    account: Account
    lifecycle: GuestLifecycle
    wanted: Wanted | None = None
    module: KnownModule | None = None
    work_queue: WorkQueue[ObjectKey] = field(default_factory=WorkQueue)
    bucket: TokenBucket = field(default_factory=lambda: TokenBucket(0))
    ready: bool = False
    """The module and the input of ``init`` are prepared."""
    fetch: bool = False
    """The module's bytes are required, although its checksum is known."""
    listed: bool = False
    """All new keys were added to the work queue."""
    evict: bool = False
    """Memory is short: the guest has to be suspended."""
    disk_full: int = 0
    """Required memory in bytes, if the guest was discarded because neither memory nor disk had space."""
    fetching: float | None = None
    """Start of the current fetch."""
    not_to_disk_before: float = 0.0
    """Time of the next attempt to suspend it, after the disk refused it."""
    failed_writes: int = 0
    """Consecutive failed attempts to suspend it."""
    not_before: float = 0.0
    next_review_at: float = 0.0
    """Time of the next access review for its waiting keys."""
    look_at: float | None = None
    """Time of the next check of the references of the spec."""
    used_at: float = 0.0
    accounted_at: float = 0.0
    """``used_at`` when its memory was last counted."""
    failures: int = 0
    """Consecutive failed starts and calls with a fault."""
    refused: Trouble | None = None
    """Reason why it is not accepted."""
    unfit: str = ""
    """SHA-256 of a module that was rejected at its start; cleared when a start succeeds."""
    stopped: Trouble | None = None
    """Reason why it does not run, although it is accepted."""
    fault: Fault | None = None
    busy: bool = False
    log_allowance: Allowance = field(default_factory=lambda: Allowance(TokenBucket(LINES_PER_SECOND, LINES_AT_ONCE)))
    """Rate limit of log lines about its failures."""

    def brought_to_disk(self, now: float, backoff: Backoff, *, written: bool) -> None:
        """Record the result of a suspension: after a failure, the next attempt waits for the backoff."""
        self.failed_writes = 0 if written else self.failed_writes + 1
        self.not_to_disk_before = 0.0 if written else now + backoff.bound(self.failed_writes)

    def unreported(self, now: float, seconds: float) -> float | None:
        """Return the seconds until the fetch is reported, ``seconds`` after its start; None: now."""
        left = (now if self.fetching is None else self.fetching) + seconds - now
        return left if left > 0 else None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.view.key

    @property
    def pinned(self) -> bool:
        """True if it is never suspended."""
        return self.wanted is not None and self.wanted.suspend_after is None
