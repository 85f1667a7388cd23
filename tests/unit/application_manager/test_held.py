"""What the circuit breaker held is withdrawn once it is not to go any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from application_manager.domain.actions import Decision, DeleteObject, Reason
from application_manager.domain.actions import Said as Because
from application_manager.reconciler import Keep
from support.nodes.withdrawals import HELD_SECONDS, Holding
from trellis.telemetry import Metrics, Stories, setup

UID = "uid-shop"


class Told(Keep):
    """Writes no status."""

    async def _tell(self, *_: object) -> None:
        return None


async def test_an_application_is_not_held_any_more_once_wadm_has_it_again() -> None:
    breaker = Holding()

    async def hold(_: object) -> float:
        breaker.held.add(UID)
        return HELD_SECONDS

    known: Any = SimpleNamespace(refused={}, won={}, lost={})
    effects: Any = SimpleNamespace(hold=hold, breaker=breaker)
    unused: Any = None
    keep = Told(known, effects, unused, Stories(setup("test", metrics=Metrics())), unused, unused)
    world: Any = SimpleNamespace(key="key", view=SimpleNamespace(uid=UID))
    await keep._keep(world, Decision((DeleteObject(Because(Reason.DELETED_IN_WADM, "it was deleted in wadm")),)), None)
    assert breaker.held == {UID}
    await keep._keep(world, Decision(waits=Because(Reason.WADM_AWAY, "wadm does not answer")), None)
    assert breaker.held == {UID}
    await keep._keep(world, Decision(), None)
    assert breaker.held == set()
