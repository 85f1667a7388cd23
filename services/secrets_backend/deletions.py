"""Distinguishes deleted SecretGrants from SecretGrants removed with their CRD.

In: changes of SecretGrants, their CRD from the API server. Out: ``cache.deleted``, ``cache.recreated``, and whether the
CRD exists. Called by ``app``. Invariants: the deletion of a grant takes effect only after a later read showed that the
CRD is the same one and is not being deleted; an unreadable or deleted CRD makes all SecretGrants unknown; a CRD that
was re-created unnoticed closes namespaces as if it had been noticed.

Reason: SecretGrants have no finalizer, and a namespace without one is open by default to the hosts in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from secrets_backend.domain.decide import Grant
from secrets_backend.gather import Cache
from secrets_backend.timings import Timings
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.informer import Change
from trellis.kube.resources import DEFINITIONS, SECRET_GRANTS, SECRETS, Manifest
from trellis.provisioning.nodes_and_jobs import unix_seconds
from trellis.telemetry import get_logger
from trellis.telemetry.health import Health

GRANT_DEFINITION: Final = f"{SECRET_GRANTS.plural}.{SECRET_GRANTS.group}"
_WHAT: Final = f"CRD {GRANT_DEFINITION}"
_DELETING: Final = "it is being deleted: Secrets are denied until it is re-created"
_RECREATED: Final = (
    "it was re-created a short time ago: a namespace without a SecretGrant is closed for some minutes, as its"
    " SecretGrants may have been deleted with the former CRD; re-create them"
)

_log = get_logger(__name__)


@dataclass(eq=False)
class GrantDeletions:
    """Reads the CRD at start, and after each change of a SecretGrant. ``home``: namespace of the installation."""

    kube: Kube
    cache: Cache
    health: Health
    timings: Timings
    home: str
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    stands: bool = False
    """True if the CRD existed at the last read, and was not being deleted."""
    _uid: str = ""
    _kept_until: float = -math.inf
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, change: Change[Grant]) -> None:
        """Record a change of a SecretGrant."""
        if change.old is not None and change.new is None:
            self.cache.deleted[change.key] = change.old
        else:
            self.cache.deleted.pop(change.key, None)
        self.cache.changed()
        self._changed.set()

    async def run(self, listed: asyncio.Event) -> None:
        """Read the CRD when due, until cancelled. ``listed``: set after the first list of SecretGrants."""
        await listed.wait()  # a grant that the first list lacks may have been deleted with the CRD
        while True:
            self._changed.clear()
            wait = await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def look(self) -> float | None:
        """Read the CRD, and apply the deletions of grants that it confirms; return seconds until the next read."""
        seen = dict(self.cache.deleted)
        try:
            found = (await self.kube.get(DEFINITIONS, GRANT_DEFINITION))["metadata"]
            if found["uid"] != self._uid and not found.get("deletionTimestamp"):
                await self._is_another(found)
        except KubeError as error:
            return self._unknown(self.kube.describe_error(error))
        if found.get("deletionTimestamp"):
            return self._unknown(_DELETING)
        self.health.ready(_WHAT)
        self.stands = True
        left = self._kept_until - self.clock()
        if left > 0:
            return left if self.cache.deleted or self.cache.recreated else None
        self._forget(seen)
        return None

    async def _is_another(self, found: Manifest) -> None:
        """Keep namespaces closed, as this CRD may replace a former one."""
        seconds = self.timings.grants if self._uid else await self._seconds_left(found)
        if seconds > 0 and not self._uid:
            self.cache.recreated = True
            self.cache.changed()
            self.health.note(_WHAT, _RECREATED)
        self._kept_until = self.clock() + seconds
        self._uid = found["uid"]

    async def _seconds_left(self, found: Manifest) -> float:
        """Return how long a CRD that was not seen before keeps namespaces closed.

        It replaces a former one if it is younger than the key, which the first start of secrets_backend created. Its
        age is by the local clock; a clock that is behind keeps the namespaces closed for longer.

        Raises:
            KubeError: the key could not be read.
        """
        try:
            key = (await self.kube.get(SECRETS, names.SECRETS_KEY, self.home, metadata=True))["metadata"]
        except NotFound:
            return 0.0
        created = unix_seconds(found["creationTimestamp"]) or 0
        if created <= (unix_seconds(key["creationTimestamp"]) or 0):
            return 0.0
        return min(self.timings.grants, self.timings.grants + created - self.wall())

    def _forget(self, seen: dict[str, Grant]) -> None:
        for key, grant in seen.items():
            if self.cache.deleted.get(key) is grant:  # not a deletion after the start of the read
                del self.cache.deleted[key]
        self.cache.recreated = False
        self.health.note(_WHAT, "")
        self.cache.changed()

    def _unknown(self, reason: str) -> float:
        if self.stands:
            _log.warning("SecretGrant CRD not found, refusing all requests", crd=GRANT_DEFINITION, reason=reason)
        self.stands = False
        if (needed := self.cache.needs_grants()) is None:
            self.health.ready(_WHAT)
        else:
            self.health.not_ready(_WHAT, f"{reason}; {needed}")
        return self.timings.definition
