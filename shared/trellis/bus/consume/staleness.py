"""Measures the staleness of a consumer, for Prometheus, the connection supervisor and the liveness probe.

In: each sign of progress. Out: seconds without progress, and verdicts. Called by ``pull_subscription``, ``subscriber``
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
"""How often a consumer is re-created before a restart is asked for."""
_ROUNDS: Final = 12
"""How often the loop goes round in that time: every 5 s."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told. ``answering`` returns for how many seconds the server has answered all that it was asked.

    A consumer is ``deaf`` after so many seconds without progress. ``clock`` returns monotonic seconds.
    """

    telemetry: Telemetry
    health: Health
    answering: Callable[[], float]
    deaf: float
    clock: Callable[[], float] = time.monotonic

    @property
    def fetch_seconds(self) -> float:
        """How long a fetch may wait for messages: several times until a consumer that hears nothing counts as deaf."""
        return self.deaf / _ROUNDS


class Hearing:
    """What is known of one subscription's ear."""

    def __init__(self, name: str, listeners: Listeners) -> None:
        self._what = f"subscription {name}"
        self._name = name
        self._listeners = listeners
        self._forget: Callable[[], None] | None = None
        self._clock = listeners.clock
        self._round = self._heard = self._made = self._clock()

    def begin(self) -> None:
        """Show staleness and answer for liveness until ``end``."""
        if self._forget is None:
            self._round = self._heard = self._clock()
            telemetry = self._listeners.telemetry
            self._forget = telemetry.metrics.subscription_staleness(telemetry.service, self._name, self.staleness)
            self._listeners.health.add_liveness(self._what, self.deafness)

    def end(self) -> None:
        """There is nothing to hear any more: the service consumes no longer."""
        forget, self._forget = self._forget, None
        if forget is not None:
            forget()
            self._listeners.health.forget(self._what)

    def made(self) -> None:
        """The consumer was made, or re-created."""
        self._made = self._clock()

    def went_round(self) -> None:
        """The loop asked the server once more, or stopped to."""
        self._round = self._clock()

    def heard(self) -> None:
        """Messages came, or there were none to come."""
        self._heard = self._clock()

    def staleness(self) -> float:
        """Return the seconds since the loop last went round, or since messages wait without coming, if that is more."""
        return self._clock() - min(self._round, self._heard)

    @property
    def needs_repair(self) -> bool:
        """Whether the consumer should be re-created: it has been deaf for long enough, since it was made too."""
        since_made = self._clock() - self._made
        return min(self.staleness(), since_made) > self._listeners.deaf / _REPAIRS

    def deafness(self) -> str | None:
        """Liveness: no progress although the server answers others; in an outage this stays alive."""
        silence, deaf = self.staleness(), self._listeners.deaf
        if silence < deaf or self._listeners.answering() < deaf:
            return None
        return f"no progress for {silence:.0f} s although NATS answers"
