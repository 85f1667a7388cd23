"""The claim of a cluster to its name: two clusters of one name would receive each other's events.

In: JetStream, the name, the UID of kube-system. Out: nothing, or ``ClusterNameInUse``. Called by
``trellis.bus.streams.connection_supervisor`` before the bus is used, and at each check. Invariants: a claim is created
only if there is none, by compare-and-swap; it is refreshed three times within its lifetime and expires by itself; a
claim of another UID is never changed (ADR 0013).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

import orjson
from nats.js import JetStreamContext
from nats.js.api import Header, RawStreamMsg, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from trellis.bus.accounts.naming import CLAIM_BUCKET, CLAIM_STREAM, CLAIM_SUBJECTS, claim_subject
from trellis.bus.errors import ClusterNameInUse, StreamError
from trellis.bus.streams.streams import lack_of_servers
from trellis.bus.timings import BusTimings
from trellis.telemetry import get_logger

_REFRESHES: Final = 3
_ATTEMPTS: Final = 5
_DUPLICATE_WINDOW_MAX: Final = 120.0
"""Seconds in which the bucket stores a message id once."""
_MAX_BYTES: Final = 1024 * 1024
_SHOWN: Final = 60
# Error codes of JetStream's API: server/errors.json of nats-server.
_NAME_IN_USE: Final = 10058
_NO_STREAM: Final = 10059
_WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})

_log = get_logger(__name__)


@dataclass(slots=True)
class Claim:
    """One service's claim to the name of its cluster; all services and replicas of a cluster share the same claim.

    ``lifetime`` (seconds) and ``replicas`` (copies) apply to a bucket that this service creates; an existing bucket
    keeps its settings.
    """

    cluster: str
    uid: str
    service: str
    lifetime: float = field(default_factory=lambda: BusTimings().claim)
    replicas: int = 1
    _refresh_at: float = field(default=0.0, init=False)

    async def hold(self, jetstream: JetStreamContext) -> None:
        """Claim the name, or refresh the claim if that is due.

        Raises:
            ClusterNameInUse: another cluster holds the name.
            StreamError: the bucket of claims cannot be created; a user has to act.
            nats.errors.Error: NATS or JetStream did not answer.
        """
        for _ in range(_ATTEMPTS):
            entry = await self._entry(jetstream)
            owner = _uid_of(entry)
            if owner is not None and owner != self.uid:
                raise ClusterNameInUse(self._in_use_message(owner))
            if owner is not None and time.monotonic() < self._refresh_at:
                return
            if await self._put(jetstream, after=(entry.seq or 0) if entry is not None else 0):
                return
        raise APIError(description=f"the claim to the cluster name {self.cluster} changes continuously")

    async def _entry(self, jetstream: JetStreamContext) -> RawStreamMsg | None:
        try:
            return await jetstream.get_last_msg(CLAIM_STREAM, claim_subject(self.cluster))
        except NotFoundError as error:
            if error.err_code == _NO_STREAM:
                await self._make(jetstream)
            return None

    async def _put(self, jetstream: JetStreamContext, *, after: int) -> bool:
        """Write the claim if the entry still has the sequence ``after``; return False if it has changed.

        If it has changed, another service wrote it: the claim is refreshed if the service belongs to this cluster, and
        the next read detects another cluster. So services that start at the same time do not exhaust their attempts.
        """
        lifetime = (await jetstream.stream_info(CLAIM_STREAM)).config.max_age or self.lifetime
        body = orjson.dumps({"uid": self.uid, "service": self.service})
        try:
            await jetstream.publish(
                claim_subject(self.cluster), body, headers={Header.EXPECTED_LAST_SUBJECT_SEQUENCE: str(after)}
            )
        except APIError as error:
            if error.err_code in _WRONG_LAST_SEQUENCE:
                self._refresh_at = time.monotonic() + lifetime / _REFRESHES
                return False
            raise
        self._refresh_at = time.monotonic() + lifetime / _REFRESHES
        return True

    async def _make(self, jetstream: JetStreamContext) -> None:
        config = StreamConfig(
            name=CLAIM_STREAM,
            subjects=[CLAIM_SUBJECTS],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_age=self.lifetime,
            max_bytes=_MAX_BYTES,
            max_msgs_per_subject=1,
            duplicate_window=min(self.lifetime, _DUPLICATE_WINDOW_MAX),
            allow_direct=True,
            num_replicas=self.replicas,
        )
        try:
            await jetstream.add_stream(config)
        except APIError as error:
            if error.err_code == _NAME_IN_USE:
                return  # another service was faster
            if (reason := lack_of_servers(self.replicas, error)) is not None:
                raise StreamError(f"bucket {CLAIM_BUCKET} cannot be created: {reason}") from error
            raise
        _log.info("created the bucket of cluster names", bucket=CLAIM_BUCKET)

    def _in_use_message(self, owner: str) -> str:
        return (
            f"another cluster uses the name {self.cluster} on this NATS (UID of kube-system: {owner} there, {self.uid} "
            f"here); set TRELLIS_CLUSTER to another name in one of them. If that cluster no longer exists, its claim "
            f"expires {self.lifetime / 60:g} min after its last refresh; to delete it immediately: nats kv del "
            f"{CLAIM_BUCKET} {self.cluster}"
        )


def _uid_of(entry: RawStreamMsg | None) -> str | None:
    """Return the UID of the cluster that holds a claim, or None if the entry does not exist or a user deleted it."""
    if entry is None or not entry.data:
        return None
    try:
        return str(orjson.loads(entry.data)["uid"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return entry.data.decode(errors="replace")[:_SHOWN]  # written manually to reserve the name
