"""A group that wants to rolls once for Secrets that its hosts were given, and no other group does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from host_manager.timings import Timings
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.lattice_speaker import LatticeSpeaker
from support.nodes.fleet import eventually
from support.secrets.secrets_host import value
from support.secrets.secrets_world import SecretsWorld
from trellis import names
from trellis.bus.bus import Bus
from trellis.events.secrets import SecretChanged, SecretUsers
from trellis.events.subjects import HOST_MANAGER, SECRETS_BACKEND
from trellis.kube.resources import DEPLOYMENTS, HOST_CONFIGS
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.thorough]

WANTED = {"annotations": {names.ANNOTATION_RESTART_ON: names.RESTART_ON_CHANGE}}


class Publisher:
    """A publisher of the events of secrets_backend on the bus of the test's cluster."""

    def __init__(self, bus: Bus, hosts: HostWorld) -> None:
        self.bus, self.hosts = bus, hosts

    async def changed(self, name: str, version: str, *hosts: str) -> None:
        groups = [SecretUsers(namespace=self.hosts.namespace, lattice="default")]
        event = SecretChanged(
            namespace="payments", name=name, uid=f"u-{name}", resource_version=version, hosts=list(hosts), groups=groups
        )
        await self.bus.publish(event, dedup=f"{name}.{version}.{len(hosts)}.{self.hosts.namespace}")


@asynccontextmanager
async def publishing(hosts: HostWorld) -> AsyncIterator[Publisher]:
    fleet = hosts.fleet
    bus = Bus(
        fleet.info.nats_url,
        cluster=fleet.id,
        cluster_uid=fleet.cluster_uid(),
        service=SECRETS_BACKEND,
        telemetry=setup("test"),
        health=Health("test"),
    )
    try:
        await bus.connect()
        await bus.start()
        yield Publisher(bus, hosts)
    finally:
        await bus.close()


def restarted_for(hosts: HostWorld, group: str) -> str:
    """Return what the pods of a group say they were restarted for."""
    template = hosts.call("GET", DEPLOYMENTS, group)["spec"]["template"]["metadata"]
    return str(template.get("annotations", {}).get(names.ANNOTATION_RESTARTED_FOR, ""))


def rolls(hosts: HostWorld, group: str) -> int:
    """Return how often what runs the pods of a group was given another spec."""
    return int(hosts.call("GET", DEPLOYMENTS, group)["metadata"]["generation"])


async def with_a_host(hosts: HostWorld, speaker: LatticeSpeaker, group: str, host: str) -> str:
    """Wait until a group has one pod, and its host sends heartbeats; return the pod's name."""
    await hosts.settled(group)
    await eventually(lambda: len(hosts.pods(group)) == 1, "one pod is left", seconds=PATIENCE)
    pod = hosts.pods(group)[0]["metadata"]["name"]
    speaker.add(host, labels={"kubernetes_pod": pod})
    await speaker.beat(host)
    expected = [{"pod": pod, "id": host}]

    def shown() -> bool:
        return [
            {key: item.get(key) for key in ("pod", "id")} for item in hosts.status(group).get("hosts") or ()
        ] == expected

    await eventually(shown, f"{host} is seen in {pod}", seconds=PATIENCE)
    return str(pod)


async def test_a_group_rolls_once_for_secrets_that_its_hosts_were_given(hosts: HostWorld, tmp_path: Path) -> None:
    service = hosts.service(Timings(gathering=2.0, rest=5.0))
    with NatsServer(tmp_path / "nats") as server:
        at: dict[str, Any] = {"natsAddress": "nats://127.0.0.1", "natsClientPort": server.port}
        async with LatticeSpeaker(server.url, "default", models=[]) as speaker, service, publishing(hosts) as publisher:
            for group, metadata in (("wants", WANTED), ("uses", {}), ("other", WANTED)):
                hosts.create(group, metadata, **at)
            pod = await with_a_host(hosts, speaker, "wants", "N-wants")
            await with_a_host(hosts, speaker, "uses", "N-uses")
            await with_a_host(hosts, speaker, "other", "N-other")
            await hosts.fleet.listening(HOST_MANAGER)
            before = {group: rolls(hosts, group) for group in ("wants", "uses", "other")}

            await publisher.changed("db", "7", "N-wants", "N-uses")
            await publisher.changed("api", "8", "N-wants")
            await publisher.changed("other", "9", "N-nobody")
            await eventually(lambda: restarted_for(hosts, "wants"), "it rolls", seconds=PATIENCE)
            assert restarted_for(hosts, "wants") == "payments/api=8 payments/db=7"
            await hosts.settled("wants")
            assert rolls(hosts, "wants") == before["wants"] + 1, "both at once"

            # The same again, as another replica would tell it, and a version from before; then a newer one.
            await publisher.changed("db", "7", "N-wants", "N-more", "N-others")
            await publisher.changed("api", "6", "N-wants")
            new = await with_a_host(hosts, speaker, "wants", "N-new")
            assert new != pod
            await publisher.changed("db", "10", "N-new")
            await eventually(
                lambda: "payments/db=10" in restarted_for(hosts, "wants"), "it rolls again", seconds=PATIENCE
            )
            assert restarted_for(hosts, "wants") == "payments/api=8 payments/db=10"
            assert rolls(hosts, "wants") == before["wants"] + 2
            await hosts.settled("wants")

            # What the pods say stays when nobody wants it any more: to take it away would roll them.
            off = {"metadata": {"annotations": {names.ANNOTATION_RESTART_ON: None}}}
            hosts.call("PATCH", HOST_CONFIGS, "wants", off)
            hosts.change("wants", hostReplicas=2)
            await eventually(lambda: len(hosts.pods("wants")) == 2, "it is scaled", seconds=PATIENCE)
            assert restarted_for(hosts, "wants") == "payments/api=8 payments/db=10"
            for group in ("uses", "other"):
                assert (rolls(hosts, group), restarted_for(hosts, group)) == (before[group], ""), group


async def test_a_secret_that_a_host_was_given_rolls_it_when_it_changes(
    hosts: HostWorld, secret_world: SecretsWorld
) -> None:
    """Both services and nothing in between: what one says, and of whom, is what the other knows hosts by."""
    service = hosts.service(Timings(gathering=0.5))
    url = secret_world.server.url
    secret_world.secret("db", password="former")
    secret_world.account(secrets=("db",))
    async with LatticeSpeaker(url, "default", models=[]) as speaker, service, secret_world.backend():
        hosts.create("group", WANTED, natsAddress="nats://127.0.0.1", natsClientPort=secret_world.server.port)
        async with secret_world.asking() as host:
            await with_a_host(hosts, speaker, "group", host.host.public)
            await hosts.fleet.listening(HOST_MANAGER)
            before = rolls(hosts, "group")
            assert value(await host.get("db", "password", namespace=hosts.namespace)) == "former"
            secret_world.secret("other", password="x")
            assert rolls(hosts, "group") == before
            secret_world.secret("db", password="newer")
            await eventually(lambda: restarted_for(hosts, "group"), "it rolls", seconds=PATIENCE)
            assert restarted_for(hosts, "group").startswith(f"{hosts.namespace}/db=")
            assert value(await host.get("db", "password", namespace=hosts.namespace)) == "newer"
            await hosts.settled("group")
            assert rolls(hosts, "group") == before + 1
