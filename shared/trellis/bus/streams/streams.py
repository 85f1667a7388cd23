"""Creates missing streams, and detects re-created ones.

In: JetStream. Out: the streams of the subject table, and the epoch of the event stream. Called by ``trellis.bus.bus``.
Invariants: limits and replicas changed by a user stay; a stream without the subjects of Trellis is rejected, not
changed. Streams of the same name are distinguished by their creation time. A new stream starts its sequence at that
time in microseconds, so no sequence repeats after a re-creation, and a late acknowledgement has no effect (ADR 0012).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError

from trellis.bus.errors import BusUnavailable, StreamError
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, STREAM_LATTICE, STREAM_SUBJECTS
from trellis.telemetry import get_logger

DUPLICATE_WINDOW: Final = 120.0
"""Seconds in which a stream stores a message id once."""
LEAST_MESSAGE: Final = 64 * 1024
"""Maximum size in bytes of an event or a dead letter; the default limit of NATS is 1 MiB."""
_DAY: Final = 86_400.0
_MIB: Final = 1024 * 1024
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Sequences from here on are times: a stream that counts from 1 does not reach this value.
_COUNTED_FROM_TIME: Final = 1 << 48
# Users type the sequence of a dead letter, and its stream has no durable consumer.
_COUNT_FROM_ONE: Final = frozenset({STREAM_DEAD})

# Error codes of JetStream's API: server/errors.json of nats-server.
_NAME_IN_USE: Final = 10058
_SUBJECTS_OVERLAP: Final = 10065
_NO_ROOM: Final = frozenset({10002, 10023, 10028, 10047})
_NOT_CLUSTERED: Final = 10074
_NO_PEERS: Final = 10005

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of a new stream in seconds and bytes, and its number of replicas."""

    max_age: float
    max_bytes: int
    replicas: int = 1


DEFAULT_LIMITS: Final[Mapping[str, StreamLimits]] = {
    STREAM_EVENTS: StreamLimits(7 * _DAY, 1024 * _MIB),
    STREAM_LATTICE: StreamLimits(7 * _DAY, 1024 * _MIB),
    STREAM_DEAD: StreamLimits(30 * _DAY, 256 * _MIB),
}


@dataclass(eq=False, slots=True)
class Epoch:
    """One incarnation of the event stream. ``over`` after its deletion: its acknowledgements are dropped."""

    created: int
    """Creation time of the stream in microseconds since 1970."""
    distinct: bool = True
    """True if the sequences are unique to this epoch; those of a manually created stream start at 1 each time."""
    last: int = 0
    """Highest observed sequence: a stream that ends before it was restored from a backup."""
    restored: int = 0
    """Number of restores that this process detected."""
    over: bool = field(default=False)

    @property
    def token(self) -> str:
        """Creation time as used in ids of dead letters."""
        return f"{self.created:x}"

    def saw(self, sequence: int) -> None:
        """Record that the stream has a message of this sequence."""
        self.last = max(self.last, sequence)


def limits_with(replicas: int) -> dict[str, StreamLimits]:
    """Return the default limits with this number of replicas."""
    return {name: replace(limits, replicas=replicas) for name, limits in DEFAULT_LIMITS.items()}


async def ensure_streams(jetstream: JetStreamContext, limits: Mapping[str, StreamLimits] = DEFAULT_LIMITS) -> Epoch:
    """Create the missing streams and return the epoch of the event stream.

    Raises:
        StreamError: a stream cannot be created, or lacks the subjects of Trellis; a user has to act.
        BusUnavailable: the server that answered reports no leader of the event stream.
        nats.errors.Error: NATS or JetStream did not answer.
    """
    infos = {
        name: await _ensure(jetstream, _new_stream(name, subject, limits[name]))
        for name, subject in STREAM_SUBJECTS.items()
    }
    _require_leader(infos[STREAM_EVENTS])
    return epoch_of(infos[STREAM_EVENTS])


def _require_leader(info: StreamInfo) -> None:
    """Reject the answer of a server that does not have the messages of the stream yet, such as an empty new replica.

    The answers of replicas may have an older last sequence than that of the leader, which does not indicate a restore.
    """
    if info.cluster is not None and not info.cluster.leader:
        raise BusUnavailable(f"stream {info.config.name} has no leader")


async def _ensure(jetstream: JetStreamContext, wanted: StreamConfig) -> StreamInfo:
    name, [subject] = str(wanted.name), wanted.subjects or []
    try:
        info = await jetstream.stream_info(name)
    except NotFoundError:
        info = await _make(jetstream, wanted)
    if subject not in (info.config.subjects or ()):
        raise StreamError(
            f"stream {name} takes {', '.join(info.config.subjects or ()) or 'no subjects'}, but not {subject}: "
            f"add it (nats stream edit {name}), or delete the stream, and Trellis re-creates it"
        )
    if (reason := _takes_nothing(info.config)) is not None:
        raise StreamError(f"stream {name} {reason}")
    copies, more = info.config.num_replicas or 1, wanted.num_replicas or 1
    if copies < more:
        _log_replicas(name, copies, more)
    return info


def _takes_nothing(config: StreamConfig) -> str | None:
    """Return the reason why a stream that a user changed stores no events, with the fix; None if it stores them."""
    if config.sealed:
        return f"is sealed and accepts no messages: delete it, and Trellis re-creates it (nats stream rm {config.name})"
    if config.no_ack:
        return f"does not acknowledge messages (no_ack): enable acknowledgements (nats stream edit {config.name} --ack)"
    if 0 < (config.max_msg_size or 0) < LEAST_MESSAGE:
        return (
            f"has max_msg_size {config.max_msg_size}: raise it to at least {LEAST_MESSAGE}, or "
            f"remove it (nats stream edit {config.name} --max-msg-size=-1)"
        )
    return None


def _new_stream(name: str, subject: str, limits: StreamLimits) -> StreamConfig:
    """Return the configuration of a new stream."""
    return StreamConfig(
        name=name,
        subjects=[subject],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=limits.max_age,
        max_bytes=limits.max_bytes,
        duplicate_window=DUPLICATE_WINDOW,
        allow_direct=True,
        num_replicas=limits.replicas,
        first_seq=None if name in _COUNT_FROM_ONE else time.time_ns() // 1000,
    )


async def _make(jetstream: JetStreamContext, wanted: StreamConfig) -> StreamInfo:
    try:
        info = await jetstream.add_stream(wanted)
    except APIError as error:
        if error.err_code == _NAME_IN_USE:
            return await jetstream.stream_info(str(wanted.name))  # another service was faster
        if (reason := _refusal(wanted, error)) is not None:
            raise StreamError(f"stream {wanted.name} cannot be created: {reason}") from error
        raise
    _log.info(
        "created the stream",
        stream=wanted.name,
        max_mib=(wanted.max_bytes or 0) // _MIB,
        max_days=round((wanted.max_age or 0) / _DAY),
        replicas=wanted.num_replicas,
    )
    return info


def _refusal(wanted: StreamConfig, error: APIError) -> str | None:
    """Return the reason why a stream cannot be created, with the fix; None if a retry may succeed."""
    if error.err_code == _SUBJECTS_OVERLAP:
        [subject] = wanted.subjects or []
        return f"another stream already has subject {subject}: remove the subject from it (nats stream ls --subjects)"
    if error.err_code in _NO_ROOM:
        return (
            f"JetStream lacks storage for its {(wanted.max_bytes or 0) // _MIB} MiB: raise the limit of the server "
            f"(jetstream max_file_store) or of the account, or lower max_bytes of {wanted.name}"
        )
    return lack_of_servers(wanted.num_replicas or 1, error)


def lack_of_servers(replicas: int, error: APIError) -> str | None:
    """Return the reason why the replicas cannot be placed, with the fix; None if the error has another cause."""
    if error.err_code == _NOT_CLUSTERED:
        reason = "the NATS server is not clustered: add servers, or set TRELLIS_STREAM_REPLICAS=1"
    elif error.err_code == _NO_PEERS:
        reason = f"fewer servers of the NATS cluster are available or have free space: {error.description}"
    else:
        return None
    return f"{replicas} replicas are configured, but {reason}"


@functools.cache
def _log_replicas(name: str, replicas: int, wanted: int) -> None:
    """Log, once per process, that a stream has fewer replicas than configured: services may not change it."""
    _log.warning(
        "existing stream keeps its replicas: change them with `nats stream edit STREAM --replicas N`",
        stream=name,
        replicas=replicas,
        wanted=wanted,
    )


def epoch_of(info: StreamInfo) -> Epoch:
    """Return the epoch of a stream.

    Raises:
        StreamError: the server does not report the creation time.
    """
    if info.created is None:
        raise StreamError(f"stream {info.config.name} has no creation time: the NATS server is too old, 2.10 is needed")
    created = (info.created - _UNIX_EPOCH) // timedelta(microseconds=1)
    return Epoch(created, (info.config.first_seq or 0) >= _COUNTED_FROM_TIME, info.state.last_seq)
