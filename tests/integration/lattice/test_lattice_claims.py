"""Clusters that claim a lattice in its own nats-server: one owns it, and another only after the first has left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import nats
import pytest
from nats.aio.client import Client

from support.nats.buses import eventually
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.follow import lattice_claim
from trellis.lattice.follow.lattice_claim import BUCKET, STREAM, LatticeClaim
from trellis.lattice.timings import ClaimTimings
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

SECONDS = 60.0
LIFETIME = 3.0


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("claims")) as started:
        yield started


@pytest.fixture
def lattice() -> str:
    return f"l-{secrets.token_hex(4)}"


@dataclass
class Cluster:
    """A cluster's claim on a connection of its own. ``owners``: its notifications, in order."""

    claim: LatticeClaim
    owners: list[str | None]
    task: asyncio.Task[None]

    async def crash(self) -> None:
        """End without a word."""
        self.task.cancel()
        await asyncio.wait({self.task})


@contextlib.asynccontextmanager
async def cluster(
    server: NatsServer, lattice: str, name: str, lifetime: float = 600.0, url: str = ""
) -> AsyncIterator[Cluster]:
    owners: list[str | None] = []
    address = LatticeAddress(NatsAddress(url or server.url), lattice)

    def link_changed() -> None:
        claim.connection_changed()

    link = LatticeConnection(address.nats, "test", link_changed)
    claim = LatticeClaim(address, link, name, lambda: owners.append(claim.owner), ClaimTimings(lifetime, look=0.5))

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(link.run())
            tasks.create_task(claim.run())

    made = Cluster(claim, owners, asyncio.create_task(run()))
    try:
        yield made
    finally:
        await made.crash()


@contextlib.asynccontextmanager
async def client_of(server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


async def until(condition: object) -> None:
    assert callable(condition)
    await eventually(condition, SECONDS)


async def test_of_clusters_that_come_together_one_owns_the_lattice(server: NatsServer, lattice: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clusters = [await stack.enter_async_context(cluster(server, lattice, f"c{number}")) for number in range(6)]
        await until(lambda: all(item.claim.owner is not None for item in clusters))
        (owner,) = {item.claim.owner for item in clusters}
        assert [item.claim.owner for item in clusters if item.claim.owned] == [owner]
        for item in clusters:
            assert set(item.owners) <= {None, owner}, "nobody ever saw another owner"


async def test_each_lattice_is_claimed_by_itself(server: NatsServer, lattice: str) -> None:
    async with cluster(server, lattice, "one") as item, cluster(server, f"{lattice}-b", "two") as two:
        await until(lambda: item.claim.owned and two.claim.owned)


async def test_a_cluster_that_comes_back_goes_on(server: NatsServer, lattice: str) -> None:
    async with cluster(server, lattice, "one") as former, cluster(server, lattice, "two") as other:
        await until(lambda: former.claim.owner == other.claim.owner is not None)
        owner = former.claim.owner
        assert owner is not None
        holder = former if former.claim.owned else other
        await holder.crash()
        async with cluster(server, lattice, owner) as again:
            await until(lambda: again.claim.owned)
            assert set(again.owners) <= {None, owner}


async def test_a_deleted_cluster_loses_the_lattice_after_the_lease_duration(server: NatsServer, lattice: str) -> None:
    async with cluster(server, lattice, "one", LIFETIME) as item, cluster(server, lattice, "two", LIFETIME) as two:
        await until(lambda: item.claim.owner == two.claim.owner is not None)
        holder, other = (item, two) if item.claim.owned else (two, item)
        await holder.crash()
        await until(lambda: other.claim.owned)
        assert not holder.claim.owned, "who cannot write again stopped before the server forgot"


async def test_a_claim_is_written_again_before_it_ends(server: NatsServer, lattice: str) -> None:
    async with cluster(server, lattice, "one", LIFETIME) as item, client_of(server) as client:
        await until(lambda: item.claim.owned)

        async def sequence() -> int:
            return (await client.jetstream().stream_info(STREAM)).state.last_seq

        async with asyncio.timeout(SECONDS):
            while await sequence() < 4:  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0.05)
        assert set(item.owners) <= {None, "one"}


async def test_a_disconnected_holder_stops_before_another_starts(
    server: NatsServer, lattice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is unavailable for longer than the claim is held, and it is asked by what clock that is counted."""
    now = [1000.0]
    monkeypatch.setattr(lattice_claim, "_now", lambda: now[0])
    async with cluster(server, lattice, "one") as item:
        await until(lambda: item.claim.owned)
        await asyncio.to_thread(server.stop)
        now[0] += 399.0
        assert item.claim.owned
        now[0] += 2.0
        assert not item.claim.owned
        assert item.claim.owner is None
        await until(lambda: item.owners[-1] is None)
        await asyncio.to_thread(server.start)
        await until(lambda: item.claim.owned)


async def test_a_bucket_that_was_deleted_is_made_again(server: NatsServer, lattice: str) -> None:
    async with cluster(server, lattice, "one") as item, client_of(server) as client:
        await until(lambda: item.claim.owned)
        await client.jetstream().delete_stream(STREAM)

        async def claimed() -> bool:
            with contextlib.suppress(nats.js.errors.Error):
                entry = await client.jetstream().get_last_msg(STREAM, f"$KV.{BUCKET}.{lattice}")
                return json.loads(entry.data or b"{}").get("cluster") == "one"
            return False

        async with asyncio.timeout(SECONDS):
            while not await claimed():  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.05)


async def test_a_claim_written_and_deleted_by_a_user_counts(server: NatsServer, lattice: str) -> None:
    async with cluster(server, lattice, "one") as item, client_of(server) as client:
        await until(lambda: item.claim.owned)
        bucket = await client.jetstream().key_value(BUCKET)
        await bucket.put(lattice, b"maintenance")
        await until(lambda: item.claim.owner == "maintenance")
        await bucket.delete(lattice)
        await until(lambda: item.claim.owned)


NO_PERMISSIONS = """
jetstream: enabled
authorization: { users: [
  { user: all, password: secret },
  { user: none, password: secret, permissions: { publish: ["wadm.api.>"], subscribe: ["_INBOX_trellis.>"] } }
] }
"""


async def test_a_cluster_without_permission_to_claim_writes_unclaimed_and_reports_it(
    tmp_path_factory: pytest.TempPathFactory, lattice: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path_factory.mktemp("rights")
    (directory / "nats.conf").write_text(NO_PERMISSIONS)
    with NatsServer(directory / "server", config=directory / "nats.conf") as guarded:
        url = f"nats://none:secret@127.0.0.1:{guarded.port}"
        async with cluster(guarded, lattice, "one", url=url) as item:
            await until(lambda: item.claim.owned)
            assert '"$JS.API.' in item.claim.unclaimed
    assert [record.levelname for record in caplog.records if lattice in record.getMessage()] == ["WARNING"]
    assert "secret" not in caplog.text
