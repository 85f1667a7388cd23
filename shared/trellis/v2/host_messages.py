"""Messages of hosts that were received while a command listened, bounded in number and size.

``Collector`` is the only mutable value. In: subjects, payloads, times. Out: ``HostMessages`` for a snapshot. Called for
each message by code that listens on NATS. Invariants: the work per message is constant, because 10,000 arrive in a
second; of a host the last payload is kept, and parsed at the end; what exceeds the bounds is counted, and then absence
proves nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.v2.messages import (
    HEARTBEATS,
    LARGEST,
    HostHeartbeat,
    Unreadable,
    WorkloadStatus,
    read_heartbeat,
    read_reply,
)

HOSTS_MOST: Final = 20_000
"""Hosts whose heartbeats are kept; any client that may publish can invent hosts."""
BYTES_MOST: Final = 128 * 2**20
"""Bytes of the kept heartbeats together."""
REPLIES_MOST: Final = 10_000
"""Replies with a failed start that are kept; the operator repeats each once a minute."""
_PREFIX: Final = f"{HEARTBEATS}."
_ID_MOST: Final = 256
_CAUSE: Final = b"WORKLOAD_STATE_ERROR"


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last heartbeat of a host. ``count``: heartbeats; ``at``: arrival of the last one, in Unix seconds.

    ``heartbeat`` is None if it could not be parsed; ``reason`` has the cause, "" if it was not to be parsed.
    """

    heartbeat: HostHeartbeat | None
    count: int
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostMessages:
    """Result of listening on the NATS of hosts. ``seconds``: uninterrupted reception; ``error``: why there was none.

    ``dropped``: messages beyond the bounds; then a missing heartbeat proves nothing. ``replies``: failed starts by the
    ID of the workload, None if they were not subscribed to; ``replies_error``: why they were not received.
    ``resolution``: of ``error``, for a user who named this NATS for one page; "" for a listener without an end.
    """

    seconds: float = 0.0
    hosts: Mapping[str, LastHeartbeat] = field(default_factory=dict)
    replies: Mapping[str, WorkloadStatus] | None = None
    dropped: int = 0
    error: str = ""
    replies_error: str = ""
    resolution: str = ""

    def missed(self, host_id: str, least: float) -> bool:
        """Return whether a heartbeat was to arrive within ``least`` seconds, and did not."""
        return not self.error and not self.dropped and self.seconds >= least and host_id not in self.hosts


@dataclass(slots=True)
class _Beat:
    payload: bytes
    count: int
    at: float
    parsed: LastHeartbeat | None = None


class Collector:
    """Collects messages."""

    def __init__(self) -> None:
        self._beats: dict[str, _Beat] = {}
        self._replies: dict[str, WorkloadStatus] | None = None
        self._bytes = 0
        self.dropped = 0

    @property
    def hosts(self) -> frozenset[str]:
        """IDs of the hosts with a heartbeat so far."""
        return frozenset(self._beats)

    def heartbeat(self, subject: str, payload: bytes, at: float) -> None:
        """Store a heartbeat that arrived at ``at`` (Unix seconds); the last one of a host counts."""
        host = subject.removeprefix(_PREFIX)
        beat = self._beats.get(host)
        grown = len(payload) - (len(beat.payload) if beat else 0)
        full = beat is None and len(self._beats) >= HOSTS_MOST
        if full or len(host) > _ID_MOST or len(payload) > LARGEST or self._bytes + grown > BYTES_MOST:
            self.dropped += 1
            return
        self._bytes += grown
        if beat is None:
            self._beats[host] = _Beat(payload, 1, at)
        else:
            beat.payload, beat.count, beat.at, beat.parsed = payload, beat.count + 1, at, None

    def forget(self, before: float) -> None:
        """Drop the heartbeats that arrived before a time (Unix seconds), for a listener without an end."""
        for host in [host for host, beat in self._beats.items() if beat.at < before]:
            self._bytes -= len(self._beats.pop(host).payload)

    def expect_replies(self) -> None:
        """Note that replies are subscribed to: then their absence shows that none arrived."""
        self._replies = self._replies or {}

    def reply(self, _subject: str, payload: bytes) -> None:
        """Store a reply if it is the status of a workload that could not be started; other replies are ignored."""
        if len(payload) > LARGEST or _CAUSE not in payload:
            return
        found = read_reply(payload)
        if isinstance(found, Unreadable):
            return
        replies = self._replies = self._replies or {}
        if found.id not in replies and len(replies) >= REPLIES_MOST:
            del replies[next(iter(replies))]
        replies[found.id] = found

    def result(self, seconds: float, *, error: str = "", wanted: Container[str] | None = None) -> HostMessages:
        """Return what was received; ``seconds``: uninterrupted reception until now.

        ``wanted``: IDs of the hosts whose heartbeats are parsed, None for all. Any client of NATS can invent hosts, and
        the parsing of 20,000 heartbeats needs seconds of CPU.
        """
        hosts = {
            host: _parsed(host, beat) if wanted is None or host in wanted else LastHeartbeat(None, beat.count, beat.at)
            for host, beat in self._beats.items()
        }
        replies = None if self._replies is None else dict(self._replies)
        return HostMessages(seconds, hosts, replies, self.dropped, error)


def _parsed(host: str, beat: _Beat) -> LastHeartbeat:
    if beat.parsed is None:
        found = read_heartbeat(beat.payload)
        if isinstance(found, Unreadable):
            beat.parsed = LastHeartbeat(None, beat.count, beat.at, found.reason)
        elif found.id != host:
            beat.parsed = LastHeartbeat(None, beat.count, beat.at, f"a heartbeat of host {found.id}")
        else:
            beat.parsed = LastHeartbeat(found, beat.count, beat.at)
    return beat.parsed
