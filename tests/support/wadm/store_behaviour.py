"""The view of wadm's applications, written once and run against the stand-in and the real wadm.

A subclass provides the fixture ``world``: a lattice of the test's own on a nats-server with a wadm.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from nats.js.kv import KeyValue

from application_manager.lattice_followers import LatticeFollowers
from support.nats.buses import eventually
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.projection import project
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import AbsenceReason, ModelStore
from trellis.lattice.domain.subjects import CONTROL_PREFIX
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wadm.client import Wadm

SECONDS = 60.0
MARK = "lattice"


@dataclass(frozen=True)
class World:
    """``lose_bucket`` deletes wadm's storage; ``renew_bucket`` has wadm make another.

    ``account``: the tenant whose lattice it is, on a NATS of a wadm for several.
    """

    url: str
    lattice: str
    kv: Callable[[], Awaitable[KeyValue]]
    lose_bucket: Callable[[], Awaitable[None]]
    renew_bucket: Callable[[], Awaitable[None]]
    account: str = ""

    @property
    def address(self) -> LatticeAddress:
        prefix = f"{self.account}.{CONTROL_PREFIX}" if self.account else CONTROL_PREFIX
        return LatticeAddress(NatsAddress(self.url), self.lattice, prefix)

    @property
    def key(self) -> str:
        """The key of the lattice's list of names."""
        return f"{self.account}-{self.lattice}" if self.account else self.lattice


@dataclass
class Followed:
    """The view of a lattice in a service. ``notified``: names of which it was woken, None for all."""

    followers: LatticeFollowers
    notified: list[tuple[str, ...] | None] = field(default_factory=list)
    lattice_id: str = MARK

    @property
    def store(self) -> ModelStore:
        found = self.followers.store(self.lattice_id)
        assert found is not None
        return found

    @property
    def wadm(self) -> Wadm:
        found = self.followers.wadm(self.lattice_id)
        assert found is not None
        return found

    async def synced(self) -> None:
        await until(lambda: self.followers.store(self.lattice_id) is not None and self.store.synced_at is not None)

    async def shows(self, name: str, *versions: str, deployed: str = "") -> None:
        """Wait until an application is seen with exactly these versions."""

        def there() -> bool:
            found = self.store.find(name)
            return found is not None and (tuple(item for item, _ in found.versions), found.deployed) == (
                versions,
                deployed,
            )

        await until(there)

    async def lacks(self, name: str, proof: AbsenceReason) -> None:
        """Wait until an application is not there, and it is known why."""
        await until(
            lambda: (
                self.store.synced_at is not None and self.store.find(name) is None and self.store.absence(name) is proof
            )
        )


async def until(condition: Callable[[], object]) -> None:
    await eventually(condition, SECONDS)


@contextlib.asynccontextmanager
async def followed(
    address: LatticeAddress, cluster: str = "one", timings: LatticeTimings = LatticeTimings()
) -> AsyncIterator[Followed]:
    """Follow a lattice for the time of a block."""
    notified: list[tuple[str, ...] | None] = []

    def wake(_: str, names: Iterable[str] | None) -> None:
        notified.append(None if names is None else tuple(sorted(names)))

    made = Followed(LatticeFollowers(wake, cluster, timings), notified)
    running = asyncio.create_task(made.followers.run())
    try:
        await made.followers.follow(MARK, address)
        yield made
    finally:
        running.cancel()
        await asyncio.wait({running})


def manifest(name: str, version: str, note: str = "") -> dict[str, Any]:
    """An application that needs no host."""
    server = {"name": "server", "type": "capability", "properties": {"image": "example.com/server:1"}}
    return {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": name, "annotations": {"version": version, "note": note}},
        "spec": {"components": [server]},
    }


class StoreBehaviour:
    """Tests of what is seen."""

    async def test_every_command_to_wadm_is_observed(self, world: World) -> None:
        async with followed(world.address) as seen:
            await seen.synced()
            await seen.wadm.put(manifest("web", "v1"))
            await seen.shows("web", "v1")
            await seen.wadm.put(manifest("web", "v0"))
            await seen.shows("web", "v1", "v0")
            await seen.wadm.deploy("web", "v1")
            await seen.shows("web", "v1", "v0", deployed="v1")
            await seen.wadm.undeploy("web")
            await seen.shows("web", "v1", "v0")
            found = seen.store.find("web")
            assert found is not None
            assert project(found.versions[0][1].read()).digest == project(manifest("web", "v1")).digest
            await seen.wadm.delete("web")
            await seen.lacks("web", AbsenceReason.DELETED)
            assert ("web",) in seen.notified
            await seen.wadm.put(manifest("web", "v1"))
            await seen.shows("web", "v1")
            assert list(seen.store.names()) == ["web"]

    async def test_wadm_reports_missing_and_unstarted_applications_as_undeployed(self, world: World) -> None:
        async with followed(world.address) as seen:
            await seen.synced()
            assert await seen.wadm.status("web") == Status("undeployed")
            await seen.wadm.put(manifest("web", "v1"))
            await seen.wadm.deploy("web", "v1")
            assert await seen.wadm.status("web") == Status("undeployed")  # there is no host
            assert seen.store.unavailable == ""

    async def test_a_manifest_is_stored_unchanged(self, world: World) -> None:
        letters = 'a \x85 b \u2028 c\t\r\n \x00\x7f \ufeff \\ " \U0001f600'
        async with followed(world.address) as seen:
            await seen.synced()
            put = manifest("web", "v1", letters)
            await seen.wadm.put(put)
            await seen.shows("web", "v1")
            found = seen.store.find("web")
            assert found is not None
            assert found.versions[0][1].read()["metadata"]["annotations"]["note"] == letters
            assert project(found.versions[0][1].read()).digest == project(put).digest

    async def test_earlier_changes_are_known_at_the_start(self, world: World) -> None:
        async with followed(world.address) as seen:
            await seen.synced()
            for name in ("stays", "goes", "comes-back"):
                await seen.wadm.put(manifest(name, "v1"))
            await seen.wadm.deploy("stays", "v1")
            await seen.wadm.delete("goes")
            await seen.wadm.delete("comes-back")
            await seen.wadm.put(manifest("comes-back", "v2"))
        async with followed(world.address) as seen:
            await seen.synced()
            await seen.shows("stays", "v1", deployed="v1")
            await seen.shows("comes-back", "v2")
            await seen.lacks("goes", AbsenceReason.DELETED)
            await seen.lacks("never", AbsenceReason.UNKNOWN)
            assert seen.store.reason == ""

    async def test_an_entry_that_a_person_purged_was_not_deleted(self, world: World) -> None:
        async with followed(world.address) as seen:
            await seen.synced()
            await seen.wadm.put(manifest("web", "v1"))
            await seen.shows("web", "v1")
            await (await world.kv()).purge(f"{world.key}-web")
            await seen.lacks("web", AbsenceReason.UNKNOWN)
            await seen.wadm.put(manifest("web", "v1"))
            await seen.shows("web", "v1")

    async def test_lattices_whose_keys_are_alike_keep_what_is_the_others(self, world: World) -> None:
        async with followed(world.address) as seen, contextlib.AsyncExitStack() as others:
            await seen.synced()
            await seen.wadm.put(manifest("b", "v1"))
            await seen.wadm.put(manifest("b-c", "v1"))
            await seen.shows("b-c", "v1")
            other = await others.enter_async_context(followed(replace(world.address, lattice=f"{world.lattice}-b")))
            await other.synced()
            assert list(other.store.names()) == []
            assert other.store.absence("c") is AbsenceReason.LOST, "its list's key has an application of the other"

    async def test_a_lost_bucket_deletes_nothing(self, world: World) -> None:
        async with followed(world.address) as seen:
            await seen.synced()
            await seen.wadm.put(manifest("web", "v1"))
            await seen.wadm.put(manifest("api", "v1"))
            await seen.shows("api", "v1")
            bucket = seen.store.bucket
            await world.lose_bucket()
            await until(lambda: seen.store.synced_at is None)
            assert seen.store.find("web") is not None
            assert seen.store.reason
            await world.renew_bucket()
            await seen.lacks("web", AbsenceReason.LOST)
            assert seen.store.bucket != bucket
            assert None in seen.notified
            await seen.wadm.put(manifest("web", "v1"))
            await seen.shows("web", "v1")
            await seen.lacks("api", AbsenceReason.LOST)
            await seen.wadm.delete("web")
            await seen.lacks("web", AbsenceReason.DELETED)
