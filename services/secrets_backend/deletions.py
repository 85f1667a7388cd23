"""Whether SecretGrants that are gone were deleted one by one, or went with their CRD.

In: changes of SecretGrants, their CRD from the API server. Out: ``known.deleted``, and whether the CRD stands. Called
by ``app``. Invariants: the deletion of a grant takes effect only after a later read has shown that the CRD is the same
one and is not being deleted; a CRD that cannot be read, or is being deleted, makes all SecretGrants unknown.
Why: SecretGrants have no finalizer, and a namespace without one is open by default to the hosts in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from secrets_backend.decide import Grant
from secrets_backend.gather import Known
from secrets_backend.settings import Timings
from trellis.health import Health
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import DEFINITIONS, SECRET_GRANTS
from trellis.telemetry import get_logger

GRANT_DEFINITION: Final = f"{SECRET_GRANTS.plural}.{SECRET_GRANTS.group}"
_WHAT: Final = f"CRD {GRANT_DEFINITION}"
_DELETING: Final = "it is being deleted: no Secret is given until it is created again"

_log = get_logger(__name__)


@dataclass(eq=False)
class GrantDeletions:
    """Reads the CRD at the start, and after each change of a SecretGrant."""

    kube: Kube
    known: Known
    grants: Informer[Grant]
    health: Health
    timings: Timings
    clock: Callable[[], float] = time.monotonic
    stands: bool = False
    """Whether the last read of the CRD showed that it is there, and not being deleted."""
    _uid: str = ""
    _kept_until: float = -math.inf
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, change: Change[Grant]) -> None:
        """Take a change of a SecretGrant."""
        if change.old is not None and change.new is None:
            self.known.deleted[change.key] = change.old
        else:
            self.known.deleted.pop(change.key, None)
        self.known.changed()
        self._changed.set()

    async def run(self) -> None:
        """Read the CRD whenever that is due, until cancelled."""
        await self.grants.synced.wait()  # a grant that the first list lacks may be gone with the CRD
        while True:
            self._changed.clear()
            wait = await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def look(self) -> float | None:
        """Read the CRD, and forget the grants whose deletion has taken effect; return the seconds to the next look."""
        seen = dict(self.known.deleted)
        try:
            found = (await self.kube.get(DEFINITIONS, GRANT_DEFINITION))["metadata"]
        except KubeError as error:
            return self._unknown(self.kube.words(error))
        if found.get("deletionTimestamp"):
            return self._unknown(_DELETING)
        self.health.ready(_WHAT)
        self.stands = True
        if self._uid not in {"", found["uid"]}:
            self._kept_until = self.clock() + self.timings.grants
        self._uid = found["uid"]
        left = self._kept_until - self.clock()
        if left > 0:
            return left if self.known.deleted else None
        self._forget(seen)
        return None

    def _forget(self, seen: dict[str, Grant]) -> None:
        for key, grant in seen.items():
            if self.known.deleted.get(key) is grant:  # not one that was deleted since the read began
                del self.known.deleted[key]
        self.known.changed()

    def _unknown(self, why: str) -> float:
        if self.stands:
            _log.warning("SecretGrants are unknown, no Secret is given", crd=GRANT_DEFINITION, reason=why)
        self.stands = False
        if (needed := self.known.needs_grants()) is None:
            self.health.ready(_WHAT)
        else:
            self.health.not_ready(_WHAT, f"{why}; {needed}")
        return self.timings.definition
