"""Timings of the bus and of its readers; tests use shorter ones.

Pure. Called by ``trellis.bus`` and by everything that creates a bus or a connection to it. In seconds; whole seconds
where the parameters of the NATS client are.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClientTimings:
    """Timings of one NATS client, in seconds."""

    ask_again: float = 1.0
    """Retry interval of a read-only JetStream request: the stream leader may have failed before answering."""
    goodbye: float = 2.0
    """Timeout for closing a TCP connection."""


@dataclass(frozen=True, slots=True)
class ConnectionTimings:
    """Timings of a service's connection, in seconds."""

    connect: int = 3
    attempt_first: float = 0.5
    attempt_most: float = 10.0
    """Maximum delay between two attempts: after the first one, and overall."""
    ping: int = 10
    """Ping interval. An unresponsive server is detected after two unanswered pings."""
    stop: float = 2.0
    """Timeout for flushing pending messages when the connection is closed."""
    silence: float = 60.0
    """Time without a connection attempt after which the client counts as stopped; attempts are at most
    ``attempt_most`` + ``connect`` apart."""
    report: float = 60.0
    """Minimum interval between two log lines about errors of one type; an error may occur per message."""
    client: ClientTimings = field(default_factory=ClientTimings)


@dataclass(frozen=True, slots=True)
class FetchTimings:
    """Timings of a pull subscription, in seconds."""

    too_soon: float = 0.25
    """Delay after a refused fetch, which ends before its timeout without messages."""
    settles: float = 0.2
    """Time without an answer after which a request counts as waiting for new messages."""
    last: int = 1
    """Timeout for ending the subscription: for the answer of the server, and for reading the delivered messages."""
    more: float = 1.0
    """Timeout for the messages that the server has; it reports the end of them at once."""


@dataclass(frozen=True, slots=True)
class HistoryTimings:
    """Timings of reading the last event of each subject, in seconds."""

    again: float = 0.5
    """Delay after a failed attempt."""
    fetch: float = 2.0
    inactive: float = 30.0
    """Inactivity after which the server removes the consumer."""


@dataclass(frozen=True, slots=True)
class DialTimings:
    """Timings of a command's connection, in seconds."""

    connect: float = 3.0
    """Timeout of the first attempt; without a server the command ends after it."""
    again: int = 1
    """Delay between two attempts to reconnect."""
    answer: float = 3.0
    """Timeout of all requests of a command for the statistics of the streams."""
    goodbye: float = 2.0
    client: ClientTimings = field(default_factory=ClientTimings)


@dataclass(frozen=True, slots=True)
class ReadTimings:
    """Timings of reading a stream, in seconds."""

    fetch: float = 1.0
    again: float = 1.0
    """Delay after a failed attempt."""
    patience: float = 10.0
    """Maximum outage that a reader of stored messages waits out."""
    inactive: float = 60.0
    """Inactivity after which the server removes the consumer."""
    goodbye: float = 1.0
    """Timeout for removing the consumer."""


@dataclass(frozen=True, slots=True)
class ReplayTimings:
    """Timings of replaying a dead letter, in seconds."""

    budget: float = 10.0
    """Timeout of all attempts to store the original."""
    attempt: float = 2.5
    again: float = 1.0
    """Delay after a failed attempt."""
    read: ReadTimings = field(default_factory=ReadTimings)


@dataclass(frozen=True, slots=True)
class BusTimings:
    """Timings of one service's bus, in seconds."""

    check: float = 5.0
    """Interval of checks of streams and consumers."""
    again: float = 1.0
    """Interval of checks while the bus is unusable."""
    ack_wait: float = 60.0
    """Time without a sign of the reader after which a message is redelivered."""
    publish_budget: float = 10.0
    """Timeout of ``publish``, all attempts included."""
    publish_attempt: float = 2.5
    """Timeout of one attempt of ``publish``."""
    claim: float = 1800.0
    """Time for which a cluster name stays claimed while none of its services runs; a cluster that was re-created
    under the same name gets it afterwards."""
    stalled_after: float = 60.0
    """Time without progress of a consumer until a restart is requested; the consumer is re-created after a third of
    it."""
    other_reader: float = 30.0
    """Time for which another reader of a consumer of Trellis counts as the previous or next leader."""
    reconnect: float = 10.0
    """Delay between two connections to a server with too low a message limit."""
    subscribe_again: int = 2
    """Timeout for retrying denied subscriptions."""
    sign_off: float = 1.0
    """Timeout for the server to register the regular end of a reader."""
    refused: float = 15.0
    """Time after which a refusal is cleared if it does not recur: checks retry it every ``check``, and publishers
    within this time, so it succeeds or is not needed any more."""
    unstored: float = 60.0
    """The same for a stream that stored nothing."""
    connection: ConnectionTimings = field(default_factory=ConnectionTimings)
    fetch: FetchTimings = field(default_factory=FetchTimings)
    history: HistoryTimings = field(default_factory=HistoryTimings)

    @property
    def keep_alive(self) -> float:
        """Interval of the reports that messages are in progress."""
        return self.ack_wait / 3
