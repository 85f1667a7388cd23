"""What the circuit breaker held is withdrawn once it is not to go any more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

from service_reflector.app import Reflect
from service_reflector.apply import Effects
from service_reflector.snapshot import Snapshot
from support.withdrawals import Holding
from trellis.health import Health
from trellis.lattice.service_views import ServiceView
from trellis.telemetry import Metrics, Stories, setup

SERVICE = ServiceView("g", "shop", "uid-shop", "1", application="shop", lattice="east/1")
GONE = Snapshot("g", "shop", services={"shop": SERVICE}, sure=True)


async def test_a_service_is_not_held_any_more_once_its_lattice_is_not_known_again() -> None:
    known: Any = SimpleNamespace(controller=None, let_go=False, said={}, snapshot=AsyncMock(return_value=GONE))
    known.why_preserved, known.services = str, {}
    breaker: Any = Holding()
    unused: Any = None
    effects = Effects(unused, AsyncMock(), known, unused, unused, unused, breaker)
    reflect = Reflect(known, effects, unused, Stories(setup("test", metrics=Metrics())), Health("test"))
    await reflect.run("g/shop", None)
    assert breaker.held == {SERVICE.uid}
    known.snapshot.return_value = replace(GONE, unknown=frozenset({SERVICE.lattice}))
    await reflect.run("g/shop", None)
    assert breaker.held == set()
