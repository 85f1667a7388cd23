"""The streams: made where they are missing, and told apart when they are made anew.

In: JetStream. Out: the streams of the subject table, and the epoch of the facts' stream. Called by ``trellis.bus.bus``.
Invariants: limits that a person changed are left alone; a stream that does not take our subjects is refused, not
changed. Two streams of one name are told apart by their creation time. A stream that we make counts its messages from
that time on, in microseconds, so that no sequence of one life is ever one of the next: a late acknowledgement of a
message that is gone reaches nobody (ADR 0012).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError

from trellis.bus.errors import StreamError
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, STREAM_LATTICE, STREAM_SUBJECTS
from trellis.telemetry import get_logger

DUPLICATE_WINDOW_SECONDS: Final = 120.0
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

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What a new stream may hold: seconds and bytes."""

    max_age: float
    max_bytes: int


DEFAULT_LIMITS: Final[Mapping[str, StreamLimits]] = {
    STREAM_EVENTS: StreamLimits(7 * _DAY, 1024 * _MIB),
    STREAM_LATTICE: StreamLimits(7 * _DAY, 1024 * _MIB),
    STREAM_DEAD: StreamLimits(30 * _DAY, 256 * _MIB),
}


@dataclass(eq=False, slots=True)
class Epoch:
    """One life of the facts' stream. ``over`` once it is gone: acknowledgements of it are dropped."""

    created: int
    """Creation time of the stream in microseconds since 1970."""
    distinct: bool = True
    """Whether the stream's sequences are of this life alone; those of a stream made by hand begin at 1 each time."""
    over: bool = field(default=False)

    @property
    def token(self) -> str:
        """Creation time as it stands in ids of dead letters."""
        return f"{self.created:x}"


async def ensure_streams(jetstream: JetStreamContext, limits: Mapping[str, StreamLimits] = DEFAULT_LIMITS) -> Epoch:
    """Make the streams that are missing and return the life of the facts' stream.

    Raises:
        StreamError: a stream cannot be made, or does not take our subjects; a person has to act.
        nats.errors.Error: NATS or JetStream did not answer.
    """
    infos = {name: await _ensure(jetstream, name, subject, limits[name]) for name, subject in STREAM_SUBJECTS.items()}
    return epoch_of(infos[STREAM_EVENTS])


async def _ensure(jetstream: JetStreamContext, name: str, subject: str, limits: StreamLimits) -> StreamInfo:
    try:
        info = await jetstream.stream_info(name)
    except NotFoundError:
        info = await _make(jetstream, name, subject, limits)
    if subject not in (info.config.subjects or ()):
        raise StreamError(
            f"stream {name} takes {', '.join(info.config.subjects or ()) or 'no subjects'}, but not {subject}: "
            f"add it (nats stream edit {name}), or delete the stream to have it made anew"
        )
    return info


async def _make(jetstream: JetStreamContext, name: str, subject: str, limits: StreamLimits) -> StreamInfo:
    config = StreamConfig(
        name=name,
        subjects=[subject],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=limits.max_age,
        max_bytes=limits.max_bytes,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        allow_direct=True,
        first_seq=None if name in _COUNT_FROM_ONE else time.time_ns() // 1000,
    )
    try:
        info = await jetstream.add_stream(config)
    except APIError as error:
        if error.err_code == _NAME_IN_USE:
            return await jetstream.stream_info(name)  # another service was faster
        if error.err_code == _SUBJECTS_OVERLAP:
            raise StreamError(
                f"stream {name} cannot be made: another stream takes {subject} already; "
                f"remove that subject from it (nats stream ls --subjects)"
            ) from error
        if error.err_code in _NO_ROOM:
            raise StreamError(
                f"stream {name} cannot be made: JetStream has no room for its {limits.max_bytes // _MIB} MiB; give the "
                f"server more (jetstream max_file_store, or the account's limit) or make max_bytes of {name} smaller"
            ) from error
        raise
    _log.info("made the stream", stream=name, max_mib=limits.max_bytes // _MIB, max_days=round(limits.max_age / _DAY))
    return info


def epoch_of(info: StreamInfo) -> Epoch:
    """Return which life of a stream this is.

    Raises:
        StreamError: the server does not say when it was created.
    """
    if info.created is None:
        raise StreamError(f"stream {info.config.name} has no creation time: the NATS server is too old, 2.10 is needed")
    created = (info.created - _UNIX_EPOCH) // timedelta(microseconds=1)
    return Epoch(created, distinct=(info.config.first_seq or 0) >= _COUNTED_FROM_TIME)
