"""Timings of secrets_backend, in seconds; tests use shorter ones. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings


@dataclass(frozen=True, slots=True)
class KeyTimings:
    """Timings of the backend's key."""

    look: float = 10.0
    """Interval of the reads of the key."""
    soon: float = 1.0
    """Minimum interval of reads caused by requests, and maximum time that a host waits for one."""
    read: float = 5.0
    """Timeout of one read of the Secret."""


@dataclass(frozen=True, slots=True)
class AccountTimings:
    """Timings of the detection of connections to one NATS account. The total timeout of hosts is 10 s."""

    silence: float = 0.75
    """Timeout of an answer, after which a connection counts as one to another account."""
    look: float = 4.0
    """Time limit for all rounds of one detection."""
    former: float = 3.0
    """Time for which a connection, with its requests, waits for those that were of its account."""


@dataclass(frozen=True, slots=True)
class AuditTimings:
    """Timings of the events about answers."""

    gap: float = 0.005
    """Delay between two events: answers come first, and in the meantime equal events become one."""
    pace: float = 0.05
    """Interval of the checks whether a source may publish."""
    bus_retry: float = 5.0
    """Retry interval of an event that the bus did not accept."""
    report: float = 10.0
    """Minimum interval of log lines about dropped events."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings of secrets_backend."""

    other: float = 30.0
    """Interval of the checks whether another backend still answers."""
    probe: float = 15.0
    """Interval of the checks for another backend."""
    probe_answer: float = 2.0
    """Timeout of another backend's answer."""
    changes: float = 60.0
    """Interval of the checks for changes of granted Secrets."""
    change_read: float = 10.0
    """Timeout of one read of a granted Secret."""
    definition: float = 5.0
    """Interval of the reads of the SecretGrant CRD while it is unreadable, or being deleted."""
    grants: float = 300.0
    """Time for which namespaces whose SecretGrants were deleted with their CRD remain closed after it is re-created."""
    recheck: float = 30.0
    """Interval of the checks of the ServiceAccounts and users of a SecretGrant that is not in effect."""
    confirm: float = 300.0
    """The same interval while it is in effect: no watch reports a deleted ServiceAccount or Role."""
    stale: float = 120.0
    """Time for which host groups and SecretGrants count as known after the last update from an unreadable watch: a
    bookmark arrives about every 60 s."""
    answer: float = 8.0
    """Time limit of an answer; hosts wait for 10 s."""
    late: float = 1.0
    """Timeout for sending the error that the time limit is exceeded."""
    report: float = 10.0
    """Minimum interval of log lines about refused requests without identity."""
    sweep: float = 5.0
    """Interval of the removals of expired Secrets."""
    settle: float = 5.0
    """Time for which a connection waits for complete grants before it serves."""
    poll: float = 0.05
    """Interval of the checks whether they are complete."""
    close: float = 2.0
    """Timeout for the end of a subscription."""
    end: float = 10.0
    """Time for which a connection without host group answers its accepted requests."""
    restart: float = 5.0
    """Delay before a failed connection is re-created."""
    key: KeyTimings = field(default_factory=KeyTimings)
    accounts: AccountTimings = field(default_factory=AccountTimings)
    audit: AuditTimings = field(default_factory=AuditTimings)
    watch: WatchTimings = field(default_factory=WatchTimings)
    """Timings of the watches of host groups and SecretGrants."""
