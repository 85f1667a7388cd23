"""One lattice over two clusters, whose NATS servers are joined as leaf nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import nats
import pytest
from nats.aio.msg import Msg

from support.lattices.host_behaviour import SECONDS, Lattice, own_lattice
from support.lattices.stub_host import Options, stub_host
from support.nats.joined_servers import joined_servers
from support.suite.settling import settle
from trellis_dev.localcluster import LocalClusterError, kill, owned_cluster, restart
from trellis_dev.localcluster.leafnodes import join
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, NatsServer]]:
    with joined_servers(tmp_path_factory.mktemp("joined")) as pair:
        yield pair


async def meet(watched: Lattice, url: str) -> None:
    """Return when a heartbeat of a host on this server is seen by who watches the lattice on another."""
    async with stub_host(Options(lattice=watched.name, heartbeat=0.1, url=url)) as host:
        heartbeat = (await watched.event("host_heartbeat", host.id))["data"]
        assert heartbeat["host_id"] == host.id


async def test_heartbeats_of_each_side_are_seen_on_the_other(servers: tuple[NatsServer, NatsServer]) -> None:
    hub, leaf = servers
    for here, there in ((hub, leaf), (leaf, hub)):
        async with Lattice.of(here.url, own_lattice()) as watched:
            await meet(watched, there.url)


async def test_a_ping_reaches_the_hosts_of_both_sides(servers: tuple[NatsServer, NatsServer]) -> None:
    hub, leaf = servers
    async with Lattice.of(hub.url, own_lattice()) as watched:
        await meet(watched, leaf.url)  # they are joined by now
        options = {"lattice": watched.name, "heartbeat": 0.1}
        async with (
            stub_host(Options(url=hub.url, **options)) as near,
            stub_host(Options(url=leaf.url, **options)) as far,
        ):
            await watched.event("host_heartbeat", far.id)
            assert {reply["response"]["id"] for reply in await watched.pings(2)} == {near.id, far.id}
            await watched.request(f"host.stop.{far.id}")
            await watched.event("host_stopped", far.id)


async def test_events_on_one_bus_stay_there(servers: tuple[NatsServer, NatsServer]) -> None:
    hub, leaf = servers
    name = own_lattice()
    async with Lattice.of(leaf.url, name) as watched:
        await meet(watched, hub.url)
    near, far = await nats.connect(hub.url), await nats.connect(leaf.url)
    received: asyncio.Queue[str] = asyncio.Queue()

    async def receive(message: Msg) -> None:
        await received.put(message.subject)

    for subject in ("trellis.>", f"wadm.evt.{name}.>"):
        await far.subscribe(subject, cb=receive)
    await settle(far)
    while received.empty():  # the hub learns of the leaf's subscriptions by and by
        await near.publish("trellis.evt.c0000001.node.opted_in.x", b"fact")
        await near.publish(f"wadm.evt.{name}.manifest_published", b"{}")
        await settle(near)
        await asyncio.sleep(0.05)
    assert await received.get() == f"wadm.evt.{name}.manifest_published"
    assert {received.get_nowait() for _ in range(received.qsize())} <= {f"wadm.evt.{name}.manifest_published"}
    await near.close()
    await far.close()


async def test_the_sides_meet_again_after_a_crash_of_the_hub(servers: tuple[NatsServer, NatsServer]) -> None:
    hub, leaf = servers
    hub.kill()
    hub.start()
    async with Lattice.of(hub.url, own_lattice()) as watched:
        await meet(watched, leaf.url)


@pytest.mark.thorough
@pytest.mark.cluster
async def test_the_servers_of_two_clusters_are_joined_and_keep_what_they_have() -> None:
    with owned_cluster() as item, owned_cluster() as two:
        client = await nats.connect(two.nats_url)
        await client.jetstream().add_stream(name="KEPT", subjects=["kept.>"])
        await client.jetstream().publish("kept.it", b"x")
        await client.close()

        await asyncio.to_thread(join, item.name, [two.name])

        client = await nats.connect(two.nats_url)
        assert (await client.jetstream().stream_info("KEPT")).state.messages == 1
        await client.close()
        async with Lattice.of(item.nats_url, own_lattice()) as watched:
            await meet(watched, two.nats_url)
        kill(two.name, "nats-server")
        await asyncio.to_thread(restart, two.name, "nats-server")
        async with Lattice.of(item.nats_url, own_lattice()) as watched:
            await asyncio.wait_for(meet(watched, two.nats_url), SECONDS)
        await asyncio.to_thread(join, item.name, [two.name])  # is so already
        with pytest.raises(LocalClusterError, match=f"'{two.name}'"):
            await asyncio.to_thread(join, two.name, [item.name])


def test_a_cluster_is_no_leaf_of_itself_or_of_none() -> None:
    with pytest.raises(LocalClusterError, match="'same'"):
        join("same", ["same"])
    with pytest.raises(LocalClusterError, match="'nowhere'"):
        join("nowhere", ["else"])


def test_a_lattice_nats_without_real_nodes_is_refused() -> None:
    with pytest.raises(LocalClusterError, match="--real-node"), owned_cluster(lattice_nats=True):
        pytest.fail("it is refused before anything starts")
