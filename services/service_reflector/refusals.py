"""Keys whose writes the API server refuses: when they are tried again, and what readiness notes of them.

In: failures and successes of the queue of applications. Out: runs of refused keys. Called by ``app``.
Invariants: a refused key runs again within seconds, however often it failed; all of them together cause a few writes a
second at most; the first that succeeds runs the others, as one policy refuses many.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from service_reflector.timings import Timings
from trellis.kube.errors import AlreadyExists, Forbidden, Invalid, KubeError, NotFound, Unavailable
from trellis.kube.resources import HTTP_ROUTES


class Queue(Protocol):
    """What of a queue is used."""

    def add(self, key: str) -> None:
        """Have a key run."""

    def add_after(self, key: str, delay: float) -> None:
        """Have a key run in ``delay`` seconds."""


def is_refused(error: Exception) -> bool:
    """Return whether the API server refused a write for a reason that only a person can remove.

    A webhook that cannot be called is answered by 500. Of a Service that came or went meanwhile (409, 404) the next run
    knows; of an HTTPRoute these mean that its kind is not served or that its name is taken.
    """
    if isinstance(error, AlreadyExists | NotFound):
        return error.kind == HTTP_ROUTES.kind
    if isinstance(error, Unavailable):
        return "webhook" in error.message
    return isinstance(error, Invalid | Forbidden)


@dataclass(eq=False, slots=True)
class Refusals:
    """The refused keys of one term, with the server's words. ``note`` takes a text for readiness, "" for none."""

    queue: Queue
    timings: Timings
    note: Callable[[str], None]
    refused: dict[str, str] = field(default_factory=dict)

    def failed(self, key: str, error: Exception) -> None:
        """Take a failed run: the queue's own backoff grows to minutes, which is too long after a refusal."""
        if isinstance(error, KubeError) and is_refused(error):
            self.refused[key] = str(error)
            bound = self.timings.refused_retry + self.timings.refused_spread * len(self.refused)
            self.queue.add_after(key, bound * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
            self._show()

    def done(self, key: str, *, wrote: bool) -> None:
        """Take a run that was not refused; after a write the other keys are tried at once."""
        if self.refused.pop(key, None) is None:
            return
        for other in self.refused if wrote else ():
            self.queue.add(other)
        self._show()

    def _show(self) -> None:
        last = next(reversed(self.refused.values()), "")
        self.note(f"of {len(self.refused)} applications: {last}" if last else "")
