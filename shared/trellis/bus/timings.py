"""Timings of the bus and of its readers; tests use shorter ones.

Pure. Called by ``trellis.bus`` and by everything that creates a bus or a connection to it. In seconds; whole seconds
where the parameters of the NATS client are.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClientTimings:
    """Seconds of one NATS client."""

    ask_again: float = 1.0
    """A question that only reads a stream is repeated after this: the leader that got it may have died with it."""
    goodbye: float = 2.0
    """How long a closed TCP connection may take to end."""


@dataclass(frozen=True, slots=True)
class ConnectionTimings:
    """Seconds of a service's connection."""

    connect: int = 3
    attempt_first: float = 0.5
    attempt_most: float = 10.0
    """Ceilings of the wait between two attempts: of the first one, and of all."""
    ping: int = 10
    """A server that is frozen, or behind a cut cable, is noticed after two unanswered pings."""
    stop: float = 2.0
    """Flush of what is still to be sent when the connection is closed."""
    silence: float = 60.0
    """Attempts come at least every ``attempt_most`` + ``connect``: after a longer silence the client does not try any
    more."""
    report: float = 60.0
    """Between two log lines about errors of one kind: there may be one a message."""
    client: ClientTimings = field(default_factory=ClientTimings)


@dataclass(frozen=True, slots=True)
class FetchTimings:
    """Seconds of a pull subscription."""

    too_soon: float = 0.25
    """A fetch without messages lasts until its timeout. One that ends sooner was refused: it is repeated after this."""
    settles: float = 0.2
    """After so long without an answer a request waits for messages that are not there yet."""
    last: int = 1
    """How long the end may take: until the server has answered, and until what it sent has been read."""
    more: float = 1.0
    """How long the server may take to send what it has: it reports at once where that ends."""


@dataclass(frozen=True, slots=True)
class HistoryTimings:
    """Seconds of reading the last event of each subject."""

    again: float = 0.5
    """The wait after an attempt that failed."""
    fetch: float = 2.0
    inactive: float = 30.0
    """The server removes the consumer of a reader that is gone after this."""


@dataclass(frozen=True, slots=True)
class DialTimings:
    """Seconds of a command's connection."""

    connect: float = 3.0
    """The first attempt: a command without a server ends after this."""
    again: int = 1
    """Between two attempts, once there was a connection."""
    answer: float = 3.0
    """All questions of a command that asks how much the streams hold."""
    goodbye: float = 2.0
    client: ClientTimings = field(default_factory=ClientTimings)


@dataclass(frozen=True, slots=True)
class ReadTimings:
    """Seconds of reading a stream."""

    fetch: float = 1.0
    again: float = 1.0
    """The wait after an attempt that failed."""
    patience: float = 10.0
    """Outages of this length are waited out by a reader of what is stored."""
    inactive: float = 60.0
    """The server removes the consumer of a reader that is gone after this."""
    goodbye: float = 1.0
    """How long removing the consumer may take."""


@dataclass(frozen=True, slots=True)
class ReplayTimings:
    """Seconds of replaying a dead letter."""

    budget: float = 10.0
    """All attempts to store the original."""
    attempt: float = 2.5
    again: float = 1.0
    """The wait after an attempt that failed."""
    read: ReadTimings = field(default_factory=ReadTimings)


@dataclass(frozen=True, slots=True)
class BusTimings:
    """Seconds of one service's bus."""

    check: float = 5.0
    """Between two looks at streams and consumers."""
    again: float = 1.0
    """Between two looks while the bus cannot be used."""
    ack_wait: float = 60.0
    """A message whose reader is silent comes again after this."""
    publish_budget: float = 10.0
    """``publish`` gives up after this."""
    publish_attempt: float = 2.5
    """One attempt of it."""
    claim: float = 1800.0
    """How long a cluster's name is kept for it while none of its services is there: a cluster that was rebuilt under
    its name gets it after this."""
    deaf: float = 60.0
    """A consumer without progress for so long asks for a restart; after a third of it the consumer is created again."""
    stranger: float = 30.0
    """How long another reader of a consumer of Trellis is taken for the former or the next leader."""
    reconnect: float = 10.0
    """Between two connections to a server that takes too small messages only."""
    subscribe_again: int = 2
    """How long sending denied subscriptions again may take."""
    sign_off: float = 1.0
    """How long a reader waits for the server to note that it ended in order."""
    refused: float = 15.0
    """What was refused is tried again every ``check``, and what is published within this: silence for longer means that
    it works, or that it is not needed."""
    unstored: float = 60.0
    """The same of a stream that stored nothing."""
    connection: ConnectionTimings = field(default_factory=ConnectionTimings)
    fetch: FetchTimings = field(default_factory=FetchTimings)
    history: HistoryTimings = field(default_factory=HistoryTimings)

    @property
    def keep_alive(self) -> float:
        """Between two reports that messages are still worked on."""
        return self.ack_wait / 3
