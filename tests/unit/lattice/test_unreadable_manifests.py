"""One manifest that cannot be read has wadm asked ever less often, and keeps nothing else from being known."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from support.cluster.kube_world import until
from support.lattices.real_lattice import application, wasm_component
from support.lattices.replayed import SilentConnection
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.follow.comparison import Comparison
from trellis.lattice.timings import ComparisonTimings, LatticeTimings

QUICK = ComparisonTimings(every=1.0, again=0.01, settle=0.001, rest=0.0, unconfirmed=0.02, busy=0.05)
GOOD = application("good", wasm_component("echo", "file:///echo.wasm"), version="v1")


class AnsweringLink(SilentConnection):
    """A link behind which wadm has two applications; ``bad`` is what it says of the second one."""

    def __init__(self, bad: Any) -> None:
        super().__init__()
        self.since = 1.0
        self.bad = bad
        self.requested: Counter[str] = Counter()

    async def there(self) -> None:
        """It is there."""

    async def ask(self, subject: str, payload: bytes = b"", *, seconds: float) -> bytes:
        """Answer as wadm does."""
        del payload, seconds
        *_, verb = subject.split(".model.")
        self.requested[verb] += 1
        if verb == "list":
            models = [
                {"name": name, "version": "v1", "deployed_version": "v1", "detailed_status": {}, "description": None}
                for name in ("good", "bad")
            ]
            return json.dumps({"result": "success", "message": "", "models": models}).encode()
        if verb == "get.good":
            return json.dumps({"result": "success", "manifest": GOOD}).encode()
        if isinstance(self.bad, Exception):
            raise self.bad
        return json.dumps(self.bad).encode()


@contextlib.asynccontextmanager
async def comparing(link: AnsweringLink) -> AsyncIterator[Comparison]:
    address = LatticeAddress(NatsAddress("nats://nowhere:4222"), "default")
    timings = LatticeTimings(comparison=QUICK)
    comparison = Comparison(address, cast("LatticeConnection", link), lambda _names, _trace: None, timings)
    task = asyncio.create_task(comparison.run())
    try:
        yield comparison
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.parametrize(
    "bad",
    [
        {"result": "success", "manifest": {"metadata": 5}},
        {"result": "error", "message": "no"},
        {"result": "success"},
    ],
    ids=["no manifest", "an error", "nothing"],
)
async def test_an_unreadable_manifest_is_requested_with_backoff(bad: Any) -> None:
    link = AnsweringLink(bad)
    async with comparing(link) as comparison:
        began = time.monotonic()
        await until(lambda: link.requested["list"] >= 5, "it is asked again")
        # After 10, 20, 40 and 80 ms; without the doubling it would be 40 ms.
        assert time.monotonic() - began >= 0.14
        assert link.requested["get.good"] == 1
        assert set(comparison.applications.deployed()) == {"good"}
        assert not comparison.applications.absent("bad")
        await until(lambda: "bad" in comparison.reason, "it is reported")


async def test_a_question_that_is_not_answered_is_asked_again_as_before() -> None:
    link = AnsweringLink(NatsUnavailableError("silence"))
    async with comparing(link):
        await until(lambda: link.requested["list"] >= 20, "it is asked every 10 ms", 10.0)


async def test_a_repaired_manifest_ends_the_backoff() -> None:
    link = AnsweringLink({"result": "success"})
    async with comparing(link) as comparison:
        await until(lambda: link.requested["list"] >= 3, "it is asked again")
        assert comparison.reason
        link.bad = {"result": "success", "manifest": {**GOOD, "metadata": {**GOOD["metadata"], "name": "bad"}}}
        await until(lambda: set(comparison.applications.deployed()) == {"good", "bad"}, "both are known")
        assert not comparison.reason
