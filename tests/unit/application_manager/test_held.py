"""What the circuit breaker held is withdrawn once it is not to go any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from application_manager.cache import Cache
from application_manager.domain.actions import Announcement as Because
from application_manager.domain.actions import Decision, DeleteObject, Reason
from application_manager.domain.placement import Key
from application_manager.domain.sides import Absence
from application_manager.domain.snapshot import Snapshot
from application_manager.following import Following
from application_manager.reconciler import Reconciler
from support.nodes.withdrawals import HELD_SECONDS, Holding
from trellis.telemetry import Metrics, TraceSpans, setup

UID = "uid-shop"


class Silent(Reconciler):
    """Writes no status."""

    async def _report(self, *_: object) -> None:
        return None


async def test_an_application_is_not_held_any_more_once_wadm_has_it_again() -> None:
    breaker = Holding()

    async def hold(_: object) -> float:
        breaker.held.add(UID)
        return HELD_SECONDS

    cache = Cache({}, cast("Following", None))
    effects: Any = SimpleNamespace(hold=hold, breaker=breaker)
    unused: Any = None
    stories = TraceSpans[Key](setup("test", metrics=Metrics()))
    keep = Silent(unused, cache, effects, unused, stories, unused)
    view: Any = SimpleNamespace(uid=UID)
    found = Snapshot(None, Absence.DELETED, view=view)
    await keep._keep(found, Decision((DeleteObject(Because(Reason.DELETED_IN_WADM, "it was deleted in wadm")),)), None)
    assert breaker.held == {UID}
    await keep._keep(found, Decision(waits=Because(Reason.WADM_AWAY, "wadm does not answer")), None)
    assert breaker.held == {UID}
    await keep._keep(found, Decision(), None)
    assert breaker.held == set()
