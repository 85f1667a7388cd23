"""Measures the staleness of a consumer, for Prometheus, the connection supervisor and the liveness probe.

In: each sign of progress. Out: seconds without progress, and liveness. Called by ``pull_subscription``, ``subscriber``
and ``connection_supervisor``. Invariants: a consumer without messages is not stalled while its loop runs; a stalled
consumer is re-created first, and liveness fails only if that does not help for a minute in which the server answers; an
outage never fails liveness.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trellis.telemetry import Telemetry
from trellis.telemetry.health import Health

_REPAIRS: Final = 3
"""Fraction of the timeout after which a stalled consumer is re-created, before a restart is requested."""
_ROUNDS: Final = 12
"""Number of fetches within the timeout: one per 5 s."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Receivers of the staleness. ``answering`` returns for how many seconds the server has answered all requests.

    ``stalled_after`` is the time in seconds without progress after which a consumer counts as stalled. ``clock``
    returns monotonic seconds.
    """

    telemetry: Telemetry
    health: Health
    answering: Callable[[], float]
    stalled_after: float
    clock: Callable[[], float] = time.monotonic

    @property
    def fetch_seconds(self) -> float:
        """Timeout of a fetch in seconds: a fraction of the time after which a consumer counts as stalled."""
        return self.stalled_after / _ROUNDS


class Staleness:
    """The staleness of one subscription."""

    def __init__(self, name: str, listeners: Listeners) -> None:
        self._what = f"subscription {name}"
        self._name = name
        self._listeners = listeners
        self._forget: Callable[[], None] | None = None
        self._clock = listeners.clock
        self._round = self._received_at = self._made = self._clock()

    def begin(self) -> None:
        """Report staleness and liveness until ``end``."""
        if self._forget is None:
            self._round = self._received_at = self._clock()
            telemetry = self._listeners.telemetry
            self._forget = telemetry.metrics.subscription_staleness(telemetry.service, self._name, self.staleness)
            self._listeners.health.add_liveness(self._what, self.stall_reason)

    def end(self) -> None:
        """Stop reporting: the service no longer consumes."""
        forget, self._forget = self._forget, None
        if forget is not None:
            forget()
            self._listeners.health.forget(self._what)

    def made(self) -> None:
        """Record that the consumer was created or re-created."""
        self._made = self._clock()

    def went_round(self) -> None:
        """Record that the loop completed a fetch."""
        self._round = self._clock()

    def received(self) -> None:
        """Record that messages arrived, or that none are pending."""
        self._received_at = self._clock()

    def staleness(self) -> float:
        """Return the seconds since the last fetch, or since pending messages are not delivered, if that is longer."""
        return self._clock() - min(self._round, self._received_at)

    @property
    def needs_repair(self) -> bool:
        """True if the consumer should be re-created: it has stalled, and was not created recently."""
        since_made = self._clock() - self._made
        return min(self.staleness(), since_made) > self._listeners.stalled_after / _REPAIRS

    def stall_reason(self) -> str | None:
        """Return the reason of a liveness failure: no progress although NATS answers; None during an outage."""
        silence, stalled_after = self.staleness(), self._listeners.stalled_after
        if silence < stalled_after or self._listeners.answering() < stalled_after:
            return None
        return f"no progress for {silence:.0f} s although NATS answers"
