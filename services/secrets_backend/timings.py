"""Timings of secrets_backend; tests use shorter ones. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings


@dataclass(frozen=True, slots=True)
class KeyTimings:
    """Seconds of the backend's key."""

    look: float = 10.0
    """Between two looks at the key."""
    soon: float = 1.0
    """The shortest time between two looks that requests cause, and the longest that a host waits for one."""
    read: float = 5.0
    """For one read of the Secret."""


@dataclass(frozen=True, slots=True)
class AccountTimings:
    """Seconds in which it is found out which links are one account of NATS. Hosts wait for 10 s in all."""

    silence: float = 0.75
    """After so long without an answer a link counts as one that does not hear."""
    look: float = 4.0
    """For all rounds of one look."""
    former: float = 3.0
    """For which a link waits for those that were of its account; requests wait with it."""


@dataclass(frozen=True, slots=True)
class AuditTimings:
    """Seconds of the events about answers."""

    gap: float = 0.005
    """Between two events: answers come first, and in the meantime equal events become one."""
    pace: float = 0.05
    """Between two looks whether a source may publish again."""
    bus_retry: float = 5.0
    """Before an event is published again that the bus did not take."""
    report: float = 10.0
    """Between two log lines about dropped events."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of secrets_backend."""

    other: float = 30.0
    """Between two looks whether another backend is still there."""
    probe: float = 15.0
    """Between two looks whether another backend has come."""
    asked: float = 2.0
    """For another backend's answer."""
    changes: float = 60.0
    """Between two looks at what was given."""
    change_read: float = 10.0
    """For one read of a Secret that was given."""
    definition: float = 5.0
    """Between two looks at the CRD of SecretGrants while it cannot be read, or is being deleted."""
    grants: float = 300.0
    """How long SecretGrants that were deleted with their CRD keep their namespaces closed after it is created again."""
    recheck: float = 30.0
    """Between two checks of the ServiceAccounts and users of a SecretGrant that is not in effect."""
    stale: float = 120.0
    """How long host groups and SecretGrants count as known after the last that was heard of them, while they cannot be
    read: a bookmark comes about every 60 s."""
    answer: float = 8.0
    """From a question to its answer; hosts wait for 10 s."""
    late: float = 1.0
    """For the answer that a request was not answered in time to leave."""
    report: float = 10.0
    """Between two log lines about requests that are refused before it is known whose they are."""
    sweep: float = 5.0
    """Between two removals of Secrets that were kept for long enough."""
    settle: float = 5.0
    """For grants to be whole before a link serves."""
    poll: float = 0.05
    """Between two looks whether they are."""
    close: float = 2.0
    """For a subscription to end."""
    end: float = 10.0
    """For a link that no group needs any more to answer what it took."""
    restart: float = 5.0
    """Before a link that failed is made again."""
    key: KeyTimings = field(default_factory=KeyTimings)
    accounts: AccountTimings = field(default_factory=AccountTimings)
    audit: AuditTimings = field(default_factory=AuditTimings)
    watch: WatchTimings = field(default_factory=WatchTimings)
    """Of the watches of host groups and SecretGrants."""
