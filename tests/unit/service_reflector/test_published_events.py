"""The published events of Services, as a new leader reads them from the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from service_reflector.domain.published_events import removed, stored
from service_reflector.gather import Cache
from service_reflector.lattice_followers import LatticeFollowers
from service_reflector.restore import restore
from trellis.events.envelope import EventData
from trellis.events.services import ServiceReflected, ServiceRemoved


def reflected(uid: str) -> ServiceReflected:
    return ServiceReflected(
        namespace="g", name="shop-2", uid=uid, lattice="east", application="shop", deployed="v1", ports=[80]
    )


def removal(uid: str) -> ServiceRemoved:
    return removed(stored(reflected(uid)))


def restored(*events: EventData) -> dict[str, dict[str, bytes]]:
    class Stream:
        async def last_events(self, _: object) -> AsyncIterator[EventData]:
            for event in events:
                yield event

    cache = Cache(cast("Any", None), {}, {}, LatticeFollowers(lambda *_: None))
    asyncio.run(restore(cache, cast("Any", Stream())))
    return cache.published


def test_a_removal_names_the_service_of_the_published_event() -> None:
    assert removal("uid-1") == ServiceRemoved(
        namespace="g", name="shop-2", uid="uid-1", lattice="east", application="shop"
    )


def test_a_restored_event_equals_the_one_that_would_be_published_again() -> None:
    assert restored(reflected("uid-1"))["g/shop"] == {"g/shop-2": stored(reflected("uid-1"))}


def test_a_removal_ends_only_the_event_of_the_same_service() -> None:
    assert restored(reflected("uid-1"), removal("uid-1"))["g/shop"] == {}
    assert restored(reflected("uid-2"), removal("uid-1"))["g/shop"] == {"g/shop-2": stored(reflected("uid-2"))}
