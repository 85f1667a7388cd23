"""Many events about applications have one reaction of the comparison: its work does not grow with their number."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from support.cluster.kube_world import until
from support.lattices.real_lattice import application, wasm_component
from support.lattices.replayed import SilentConnection
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.applications import Applications
from trellis.lattice.follow.comparison import Comparison
from trellis.lattice.follow.model_watch import ModelWatch
from trellis.lattice.timings import LatticeTimings, ModelWatchTimings

EVENTS = 50


class EmptyLattice(SilentConnection):
    """A connection behind which wadm has no application; ``lists`` counts its queries."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    async def there(self) -> None:
        """It is there."""

    async def ask(self, subject: str, payload: bytes = b"", *, seconds: float) -> bytes:
        """Answer as wadm does."""
        del subject, payload, seconds
        self.lists += 1
        return json.dumps({"result": "success", "message": "", "models": []}).encode()


async def test_further_events_do_not_compute_the_time_of_the_next_query_again(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[float] = []
    recheck_in = Applications.recheck_in

    def counted(self: Applications, now: float) -> float | None:
        computed.append(now)
        return recheck_in(self, now)

    monkeypatch.setattr(Applications, "recheck_in", counted)
    lattice, address = EmptyLattice(), LatticeAddress(NatsAddress("nats://nowhere:4222"), "default")
    comparison = Comparison(address, cast("LatticeConnection", lattice), lambda _names, _trace: None)
    running = asyncio.create_task(comparison.run())
    await until(lambda: comparison.applications.complete, "wadm has answered")
    before = len(computed)
    for number in range(EVENTS):
        manifest = application(f"app-{number}", wasm_component("echo", "file:///echo.wasm"), version="v1")
        event = {"time": f"2026-01-01T00:00:{number:02}Z", "data": manifest}
        lattice.deliver("wadm.evt.default.manifest_published", json.dumps(event).encode())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(comparison.applications.deployed()) == EVENTS
    assert 1 <= len(computed) - before <= 2
    running.cancel()
    await asyncio.wait({running})


async def test_while_events_do_not_end_wadm_is_queried_periodically() -> None:
    timings = LatticeTimings(models=ModelWatchTimings(refresh=0.05, quiet=3600.0))
    lattice, address = EmptyLattice(), LatticeAddress(NatsAddress("nats://nowhere:4222"), "default")
    watch = ModelWatch(address, cast("LatticeConnection", lattice), lambda: None, timings)
    running = asyncio.create_task(watch.run())

    def queried() -> bool:
        lattice.deliver("wadm.evt.default.manifest_unpublished", b'{"data": {"name": "shop"}}')
        return lattice.lists >= 3

    await until(queried, "queried although an event arrived at each look")
    running.cancel()
    await asyncio.wait({running})
