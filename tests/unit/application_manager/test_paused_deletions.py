"""A paused deletion is withdrawn once the object is no longer to be deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from application_manager.cache import Cache
from application_manager.domain.actions import Announcement as Because
from application_manager.domain.actions import Decision, DeleteObject, Reason
from application_manager.domain.sides import Absence
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import Key
from application_manager.lattice_followers import LatticeFollowers
from application_manager.reconciler import Reconciler
from support.nodes.withdrawals import PAUSE_SECONDS, PausingBreaker
from trellis.telemetry import Metrics, TraceSpans, setup

UID = "uid-shop"


class Silent(Reconciler):
    """Writes no status."""

    async def _report(self, *_: object) -> None:
        return None


async def test_an_application_is_no_longer_paused_once_wadm_has_it_again() -> None:
    breaker = PausingBreaker()

    async def admit(_: object) -> float:
        breaker.paused.add(UID)
        return PAUSE_SECONDS

    cache = Cache({}, cast("LatticeFollowers", None))
    effects: Any = SimpleNamespace(admit=admit, breaker=breaker)
    unused: Any = None
    traces = TraceSpans[Key](setup("test", metrics=Metrics()))
    reconciler = Silent(unused, cache, effects, unused, traces, unused)
    view: Any = SimpleNamespace(uid=UID)
    found = Snapshot(None, Absence.DELETED, view=view)
    await reconciler._carry_out(
        found, Decision((DeleteObject(Because(Reason.DELETED_IN_WADM, "it was deleted in wadm")),)), None
    )
    assert breaker.paused == {UID}
    await reconciler._carry_out(found, Decision(waits=Because(Reason.WADM_UNAVAILABLE, "wadm does not answer")), None)
    assert breaker.paused == {UID}
    await reconciler._carry_out(found, Decision(), None)
    assert breaker.paused == set()
