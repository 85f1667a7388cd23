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
"""Bytes that a message of an event or a dead letter may need; NATS takes 1 MiB unless it is set."""
_DAY: Final = 86_400.0
_MIB: Final = 1024 * 1024
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Sequences from here on are times: no stream that counts from 1 gets this far.
_COUNTED_FROM_TIME: Final = 1 << 48
# A dead letter is taken out by its number, which people type, and has no durable consumer.
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
    """What a new stream may hold, seconds and bytes, and how many servers keep a copy of it."""

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
    """One life of the events' stream. ``over`` once it is gone: acknowledgements of it are dropped."""

    created: int
    """Creation time of the stream in microseconds since 1970."""
    distinct: bool = True
    """Whether the stream's sequences are of this life alone; those of a stream made manually begin at 1 each time."""
    last: int = 0
    """Highest sequence that was seen in it: a stream that ends before was restored from a backup."""
    restored: int = 0
    """How often it went back while this process looked."""
    over: bool = field(default=False)

    @property
    def token(self) -> str:
        """Creation time as it stands in ids of dead letters."""
        return f"{self.created:x}"

    def saw(self, sequence: int) -> None:
        """Note that the stream has a message of this sequence."""
        self.last = max(self.last, sequence)


def limits_with(replicas: int) -> dict[str, StreamLimits]:
    """Return the default limits, for streams of which so many servers keep a copy."""
    return {name: replace(limits, replicas=replicas) for name, limits in DEFAULT_LIMITS.items()}


async def ensure_streams(jetstream: JetStreamContext, limits: Mapping[str, StreamLimits] = DEFAULT_LIMITS) -> Epoch:
    """Make the streams that are missing and return the life of the events' stream.

    Raises:
        StreamError: a stream cannot be made, or does not take our subjects; a user has to act.
        BusUnavailable: the events' stream has no leader as far as the server that answered knows.
        nats.errors.Error: NATS or JetStream did not answer.
    """
    infos = {
        name: await _ensure(jetstream, _new_stream(name, subject, limits[name]))
        for name, subject in STREAM_SUBJECTS.items()
    }
    _require_leader(infos[STREAM_EVENTS])
    return epoch_of(infos[STREAM_EVENTS])


def _require_leader(info: StreamInfo) -> None:
    """Refuse the answer of a server that does not have the stream's messages yet, as one that came back empty.

    Beside the leader's it comes as well, with an older last sequence: that is no stream that was restored.
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
    if (why := _takes_nothing(info.config)) is not None:
        raise StreamError(f"stream {name} {why}")
    copies, more = info.config.num_replicas or 1, wanted.num_replicas or 1
    if copies < more:
        _tell_of_copies(name, copies, more)
    return info


def _takes_nothing(config: StreamConfig) -> str | None:
    """Return why a stream that a user changed stores no event, and what to do; None if it stores them."""
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
    """Return what a stream is made as."""
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
        if (why := _refusal(wanted, error)) is not None:
            raise StreamError(f"stream {wanted.name} cannot be created: {why}") from error
        raise
    _log.info(
        "created the stream",
        stream=wanted.name,
        max_mib=(wanted.max_bytes or 0) // _MIB,
        max_days=round((wanted.max_age or 0) / _DAY),
        copies=wanted.num_replicas,
    )
    return info


def _refusal(wanted: StreamConfig, error: APIError) -> str | None:
    """Return why a stream cannot be made, and what to do; None if it may work the next time."""
    if error.err_code == _SUBJECTS_OVERLAP:
        [subject] = wanted.subjects or []
        return f"another stream already has subject {subject}: remove the subject from it (nats stream ls --subjects)"
    if error.err_code in _NO_ROOM:
        return (
            f"JetStream has no room for its {(wanted.max_bytes or 0) // _MIB} MiB; give the server more (jetstream "
            f"max_file_store, or the account's limit) or make max_bytes of {wanted.name} smaller"
        )
    return lack_of_servers(wanted.num_replicas or 1, error)


def lack_of_servers(replicas: int, error: APIError) -> str | None:
    """Return why so many copies cannot be kept, and what to do; None if the error says something else."""
    if error.err_code == _NOT_CLUSTERED:
        why = "the NATS server is not clustered: add servers, or set TRELLIS_STREAM_REPLICAS=1"
    elif error.err_code == _NO_PEERS:
        why = f"fewer servers of the NATS cluster are available or have free space: {error.description}"
    else:
        return None
    return f"{replicas} replicas are configured, but {why}"


@functools.cache
def _tell_of_copies(name: str, copies: int, wanted: int) -> None:
    """Say, once a process, that a stream has fewer copies than it is to have: services may not change it."""
    _log.warning(
        "existing stream keeps its replicas: change them with `nats stream edit STREAM --replicas N`",
        stream=name,
        copies=copies,
        wanted=wanted,
    )


def epoch_of(info: StreamInfo) -> Epoch:
    """Return which life of a stream this is.

    Raises:
        StreamError: the server does not say when it was created.
    """
    if info.created is None:
        raise StreamError(f"stream {info.config.name} has no creation time: the NATS server is too old, 2.10 is needed")
    created = (info.created - _UNIX_EPOCH) // timedelta(microseconds=1)
    return Epoch(created, (info.config.first_seq or 0) >= _COUNTED_FROM_TIME, info.state.last_seq)
