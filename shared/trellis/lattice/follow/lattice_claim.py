"""The claim of one of several clusters on the applications of a lattice.

In: a connection, the address of a lattice, the name of a cluster. Out: the owner, and notifications of changes. Called
by the services that manage applications. Invariants: a claim is created only if there is none, by compare-and-swap; it
is refreshed three times within its lifetime; the owner stops a third of the lifetime before the server expires the
claim, by its own clock from before the write, so that no two clocks are compared (ADR 0046).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import nats.errors
import orjson
from nats.js import JetStreamContext
from nats.js.api import Header, RawStreamMsg, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from trellis.bus.connection import cancellation
from trellis.bus.connection.connection import describe
from trellis.bus.connection.user_client import PermissionDenied
from trellis.events.subjects import escape
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.timings import ClaimTimings
from trellis.lattice.wakeup import Wakeup
from trellis.telemetry import get_logger

BUCKET: Final = "TRELLIS_LATTICES"
"""Bucket in the NATS of the lattice. Key: name of the lattice; in a multitenant account ``<account>.<name>``."""
STREAM: Final = f"KV_{BUCKET}"
_WRITES: Final = 3
_VALID_SHARE: Final = 2 / 3
_MAX_BYTES: Final = 2**20
_REFUSALS: Final = 6
# Error codes of JetStream's API: server/errors.json of nats-server.
_NAME_IN_USE: Final = 10058
_NO_STREAM: Final = 10059
_WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
_TROUBLE: Final = (nats.errors.Error, NatsUnavailableError, OSError, TimeoutError)

_log = get_logger(__name__)


class LatticeClaim:
    """The claim on a lattice. ``changed`` is called in the event loop when the owner changes."""

    def __init__(
        self,
        address: LatticeAddress,
        connection: LatticeConnection,
        cluster: str,
        changed: Callable[[], None],
        timings: ClaimTimings = ClaimTimings(),
    ) -> None:
        self.unclaimed = ""
        """Why a claim cannot be recorded; this cluster then counts as the owner. Empty if it can."""
        self._lattice = address.name
        names = filter(None, (address.account, address.lattice))
        self._subject = f"$KV.{BUCKET}.{'.'.join(map(escape, names))}"
        self._connection = connection
        self._cluster = cluster
        self._changed = changed
        self._timings = timings
        self._held_until = 0.0
        self._write_at = 0.0
        self._other = ""
        self._refusals = 0
        self._reported: str | None = None
        self._look_now = Wakeup()

    @property
    def owned(self) -> bool:
        """True if this cluster may write to the lattice; must be read before each write."""
        return bool(self.unclaimed) or _now() < self._held_until

    @property
    def owner(self) -> str | None:
        """Name of the cluster that owns the applications of the lattice, None if unknown."""
        return self._cluster if self.owned else self._other or None

    def connection_changed(self) -> None:
        """Read the claim at once after a reconnect."""
        self._look_now.set()

    async def run(self) -> None:
        """Keep the claim, or wait for it, until cancelled."""
        while True:
            cancellation.check()
            self._report_owner()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timings.answer):
                    await self._connection.there()
                    await self._look()
            self._report_owner()
            self._look_now.clear()
            await self._look_now.wait(self._timings.look)

    async def _look(self) -> None:
        try:
            await self._claim(self._connection.jetstream())
        except PermissionDenied as error:
            self._refused(describe(error))
        except (nats.errors.NoRespondersError, ServiceUnavailableError):
            self._refusals += 1
            if self._refusals > _REFUSALS:  # a starting server has no JetStream for a moment
                self._refused("JetStream is disabled for this NATS user")
        except _TROUBLE as error:
            # An own claim stays valid for its lifetime; another owner stays recorded until the next successful read.
            _log.debug("lattice ownership could not be read", lattice=self._lattice, reason=describe(error))

    async def _claim(self, jetstream: JetStreamContext) -> None:
        """Claim the lattice if it has no owner, or refresh the claim of this cluster if it is due.

        Raises:
            nats.errors.Error, NatsUnavailableError, OSError, TimeoutError: NATS or its JetStream did not answer.
        """
        entry = await self._entry(jetstream)
        owner = _owner_of(entry)
        self._refusals, self.unclaimed = 0, ""
        if owner and owner != self._cluster:
            self._held_until, self._other = 0.0, owner
            return
        self._other = ""
        if owner and self.owned and _now() < self._write_at:
            return
        began = _now()
        lifetime = (await jetstream.stream_info(STREAM)).config.max_age or self._timings.lifetime
        if await self._put(jetstream, after=(entry.seq or 0) if entry is not None else 0):
            self._held_until, self._write_at = began + _VALID_SHARE * lifetime, began + lifetime / _WRITES
        else:
            self._held_until = 0.0  # another cluster was faster; the next read finds its name
            self._look_now.set()

    async def _entry(self, jetstream: JetStreamContext) -> RawStreamMsg | None:
        try:
            return await jetstream.get_last_msg(STREAM, self._subject)
        except NotFoundError as error:
            if error.err_code == _NO_STREAM:
                await self._make(jetstream)
            return None

    async def _put(self, jetstream: JetStreamContext, *, after: int) -> bool:
        """Write the claim if the entry is unchanged since the read; return whether it was."""
        body = orjson.dumps({"cluster": self._cluster})
        try:
            await jetstream.publish(
                self._subject,
                body,
                headers={Header.EXPECTED_LAST_SUBJECT_SEQUENCE: str(after)},
                timeout=self._timings.answer,
            )
        except APIError as error:
            if error.err_code in _WRONG_LAST_SEQUENCE:
                return False
            raise
        return True

    async def _make(self, jetstream: JetStreamContext) -> None:
        config = StreamConfig(
            name=STREAM,
            subjects=[f"$KV.{BUCKET}.>"],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_age=self._timings.lifetime,
            max_bytes=_MAX_BYTES,
            max_msgs_per_subject=1,
            duplicate_window=min(self._timings.lifetime, self._timings.duplicates),
            allow_direct=True,
            allow_rollup_hdrs=True,
        )
        try:
            await jetstream.add_stream(config)
        except APIError as error:
            if error.err_code != _NAME_IN_USE:
                raise

    def _refused(self, reason: str) -> None:
        if self._other:  # revoked permissions do not make this cluster the owner
            return
        if not self.unclaimed:
            _log.warning(
                "ownership of the lattice's applications cannot be recorded: another cluster could write them too",
                lattice=self._lattice,
                reason=reason,
            )
        self.unclaimed = reason

    def _report_owner(self) -> None:
        owner = self.owner
        if owner != self._reported:
            if owner is not None:
                _log.info("owner of the lattice's applications changed", lattice=self._lattice, owner=owner)
            self._reported = owner
            self._changed()


def _now() -> float:
    """Return seconds of the boot clock, which also runs while this process or the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _owner_of(entry: RawStreamMsg | None) -> str:
    """Return the cluster of a claim, "" if there is no entry, or a user deleted it."""
    if entry is None or not entry.data:
        return ""
    try:
        found = orjson.loads(entry.data)["cluster"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return entry.data.decode(errors="replace")[:60]  # written manually: a user reserves the lattice
    return str(found)
