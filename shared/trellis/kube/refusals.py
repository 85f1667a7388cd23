"""Keys whose writes the API server rejects: their retries, and the readiness that they cause.

In: runs of a keyed queue. Out: runs of rejected keys. Called by ``app`` of services, and by the queue. Invariants: a
rejected key is retried within seconds, however often it failed; all of them together cause at most a few writes per
second; the first success retries all of them, because one policy often rejects many.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from trellis.crds.conditions import cause_of_refusal
from trellis.kube.errors import Forbidden, Invalid, KubeError, Unavailable
from trellis.kube.timings import RefusalTimings
from trellis.telemetry import TraceContext
from trellis.telemetry.health import Health

_TERMINATING: Final = "because it is being terminated"
K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
Run = Callable[[K, TraceContext | None], Awaitable[float | None]]


class Queue(Protocol[K_contra]):
    """Required methods of a keyed queue."""

    def add(self, key: K_contra) -> None:
        """Add a key."""

    def add_after(self, key: K_contra, delay: float) -> None:
        """Add a key after ``delay`` seconds."""


def is_refused(error: Exception) -> bool:
    """Return whether the API server refused a write for a cause that only a user can remove.

    Admission, quota and RBAC answer 403 or 422; a webhook that cannot be called is answered by 500.
    """
    if isinstance(error, Unavailable):
        return "webhook" in error.message
    return isinstance(error, Invalid | Forbidden)


def cause_of(error: KubeError) -> str:
    """Return the cause of a refusal, then the request, for conditions and Events."""
    return f"{cause_of_refusal(error.message)}; request: {error.call}"


def is_terminating(error: KubeError) -> bool:
    """Return whether a create failed because its namespace is being deleted, which is not a refusal."""
    return _TERMINATING in error.message


WRITE_REFUSED: Final = "WriteRefused"
"""Reason of conditions and Events, and name of the readiness note."""


def noted(health: Health, what: str = WRITE_REFUSED) -> Callable[[str], None]:
    """Return a ``report`` that keeps the service ready: refusals in one namespace do not affect the rest."""
    return partial(health.note, what)


def unready(health: Health, what: str) -> Callable[[str], None]:
    """Return a ``report`` that makes the service not ready while keys are refused."""

    def report(reason: str) -> None:
        if reason:
            health.not_ready(what, reason)
        else:
            health.forget(what)

    return report


@dataclass(eq=False)
class Refusals(Generic[K]):
    """The refused keys of one queue and leadership term, with the server's messages.

    ``report`` receives the text for readiness, "" for none. ``refuses`` returns whether an error is a refusal.
    """

    queue: Queue[K]
    report: Callable[[str], None]
    timings: RefusalTimings = field(default_factory=RefusalTimings)
    refuses: Callable[[Exception], bool] = is_refused
    refused: dict[K, str] = field(default_factory=dict)

    def heeding(self, run: Run[K]) -> Run[K]:
        """Return a run that also records its result here."""

        async def heeded(key: K, trace: TraceContext | None) -> float | None:
            try:
                again = await run(key, trace)
            except Exception as error:
                self.failed(key, error)
                raise
            self.done(key)
            return again

        return heeded

    def failed(self, key: K, error: Exception) -> None:
        """Record a failed run and retry a refusal soon: the queue's own backoff grows to minutes."""
        if isinstance(error, KubeError) and self.refuses(error):
            self.refused[key] = str(error)
            bound = self.timings.bound(len(self.refused))
            self.queue.add_after(key, bound * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
            self._report()

    def done(self, key: K) -> None:
        """Record a run that was not refused; retry the other refused keys immediately."""
        if self.refused.pop(key, None) is None:
            return
        for other in self.refused:
            self.queue.add(other)
        self._report()

    async def run(self) -> None:
        """Wait until the term ends, then clear the report: another replica writes then."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.report("")

    def _report(self) -> None:
        last, others = next(reversed(self.refused.values()), ""), len(self.refused) - 1
        self.report(f"{last} ({others} more refused)" if others > 0 else last)
