"""A paused deletion is withdrawn once the object is no longer to be deleted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from service_reflector.apply import Effects
from service_reflector.domain.service_options import options_of
from service_reflector.domain.snapshot import Claim, Snapshot
from service_reflector.reconciler import Reconciler
from support.nodes.withdrawals import PausingBreaker
from support.wadm.manifests import manifest
from trellis.bus.consume.queue import KeyedQueue
from trellis.lattice.domain.manifests import read_application
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.service_views import ServiceView
from trellis.telemetry import Metrics, TraceSpans, setup
from trellis.telemetry.health import Health

STORED = b'{"labels":{},"annotations":{},"finalizers":[],"spec":{}}'
SERVICE = ServiceView("g", "shop", "uid-shop", "1", application="shop", lattice="east/1", stored=STORED)
APPLICATION = read_application(manifest())
CLAIM = Claim(SERVICE.lattice, APPLICATION, options_of(APPLICATION), (), {}, ProviderHosts(), None)
DELETED = Snapshot("g", "shop", services={"shop": SERVICE}, sure=True)


@pytest.fixture
async def paused() -> tuple[Any, Any, PausingBreaker]:
    """Return what is known, effects that only hold, and a circuit breaker that holds the Service."""
    cache: Any = SimpleNamespace(
        controller=None, remove_finalizers=False, published={}, snapshot=AsyncMock(return_value=DELETED)
    )
    cache.preserved_text, cache.services = str, {}
    breaker: Any = PausingBreaker()
    unused: Any = None
    effects = Effects(unused, AsyncMock(), cache, unused, unused, unused, breaker)
    await reflected(cache, effects)
    assert breaker.paused == {SERVICE.uid}
    return (
        cache,
        SimpleNamespace(breaker=breaker, apply=AsyncMock(return_value=None)),
        breaker,
    )


async def reflected(cache: Any, effects: Any) -> None:
    unused: Any = None
    telemetry = setup("test", metrics=Metrics())
    queue = KeyedQueue[str](workers=1, name="applications", telemetry=telemetry)
    await Reconciler(cache, effects, unused, TraceSpans(telemetry), Health("test"), queue).run("g/shop", None)


async def test_a_service_is_no_longer_paused_once_its_application_is_deployed_again(
    paused: tuple[Any, Any, PausingBreaker],
) -> None:
    cache, effects, breaker = paused
    cache.snapshot.return_value = replace(DELETED, claims=(CLAIM,))
    await reflected(cache, effects)
    assert breaker.paused == set()


async def test_a_service_stays_paused_while_it_is_not_known_whether_its_lattice_has_the_application(
    paused: tuple[Any, Any, PausingBreaker],
) -> None:
    cache, effects, breaker = paused
    cache.snapshot.return_value = replace(DELETED, unknown=frozenset({SERVICE.lattice}))
    await reflected(cache, effects)
    assert breaker.paused == {SERVICE.uid}
