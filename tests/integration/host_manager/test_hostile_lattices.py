"""Lattices that send too much, or refuse connections: groups continue, statuses are written, no secret is shown."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import orjson
import pytest

from host_manager.timings import Timings
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.lattice_speaker import LatticeSpeaker
from support.nodes.fleet import eventually
from support.suite.settling import settle
from trellis.kube.resources import DEPLOYMENTS, EVENTS
from trellis.lattice.timings import ConnectionTimings, FloodTimings, LatticeTimings
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster

HOSTS = 1_200
LABELS = {f"label-{number}": "x" * 60 for number in range(40)}
PASSWORD, TOKEN, PULL = "hunter2-of-the-url", "SEED-of-the-credentials", "pull-password-of-the-registry"


@pytest.mark.thorough
async def test_a_lattice_of_many_loud_hosts_is_shown_in_part_and_other_groups_go_on(
    hosts: HostWorld, tmp_path: Path
) -> None:
    with NatsServer(tmp_path / "nats") as server:
        async with LatticeSpeaker(server.url, "loud", models=[]) as speaker, hosts.service():
            hosts.create("group", lattice="loud", natsAddress="nats://127.0.0.1", natsClientPort=server.port)
            await eventually(
                lambda: hosts.condition("group", "ApplicationsKnown")[0] == "True", "it is heard", seconds=PATIENCE
            )
            for number in range(HOSTS):
                data = {"host_id": f"N{number:04}", "version": "1.9.2", "labels": LABELS}
                event = json.dumps({"specversion": "1.0", "data": data}).encode()
                await speaker.client.publish("wasmbus.evt.loud.host_heartbeat", event)
                await speaker.client.publish("wasmbus.evt.loud.host_heartbeat", event[: number % len(event)])
            await settle(speaker.client)
            hosts.create("other")
            await hosts.settled("other")

            def is_reported() -> bool:
                return f"of {HOSTS}" in hosts.condition("group", "HostsReporting")[2]

            await eventually(is_reported, "it is said how many are not shown", seconds=PATIENCE)
            status = hosts.status("group")
            shown = status["latticeHosts"]
            assert 0 < len(shown) < HOSTS
            assert f"shows {len(shown)} of {HOSTS}" in hosts.condition("group", "HostsReporting")[2]
            assert len(orjson.dumps(status)) < 1_000_000


@pytest.mark.thorough
async def test_a_flooding_lattice_is_unfollowed_for_a_while_and_none_of_its_hosts_counts_as_missing(
    hosts: HostWorld, tmp_path: Path
) -> None:
    timings = Timings(lattice=LatticeTimings(connection=ConnectionTimings(flood=FloodTimings(unavailable=5.0))))
    with NatsServer(tmp_path / "nats") as server:
        async with LatticeSpeaker(server.url, "flood", models=[]) as speaker, hosts.service(timings):
            speaker.add("N-one")
            hosts.create("group", lattice="flood", natsAddress="nats://127.0.0.1", natsClientPort=server.port)
            await eventually(lambda: shown(hosts) == ["N-one"], "its host is heard", seconds=PATIENCE)
            for _ in range(100):
                for _ in range(1_000):
                    await speaker.client.publish("wasmbus.evt.flood.host_heartbeat", b"x")
                await settle(speaker.client)
                if hosts.condition("group", "HostsReporting")[1] == "LatticeUnreachable":
                    break
            await eventually(
                lambda: "wasmbus.evt.flood" in hosts.condition("group", "HostsReporting")[2],
                "it says so",
                seconds=PATIENCE,
            )
            assert hosts.condition("group", "HostsReporting")[:2] == ("Unknown", "LatticeUnreachable")
            assert shown(hosts) == ["N-one"], "what was known stays"
            hosts.create("other")
            await hosts.settled("other")
            await eventually(
                lambda: hosts.condition("group", "HostsReporting")[1] != "LatticeUnreachable",
                "it is heard again",
                seconds=PATIENCE,
            )
            assert shown(hosts) == ["N-one"]


def shown(hosts: HostWorld) -> list[str]:
    return [lattice_host["id"] for lattice_host in hosts.status("group").get("latticeHosts") or ()]


def reported(hosts: HostWorld, caplog: pytest.LogCaptureFixture) -> str:
    """Return all output about the groups: logs, Events, statuses, what runs the pods."""
    logs = [f"{record.getMessage()} {record.exc_text or ''} {record.msg}" for record in caplog.records]
    groups: list[Any] = [hosts.status(name) for name in ("refused", "unreadable")]
    objects = [hosts.call("GET", EVENTS)["items"], hosts.call("GET", DEPLOYMENTS)["items"]]
    for deployment in objects[1]:
        deployment["metadata"].pop("managedFields", None)
    return json.dumps([logs, groups, objects])


async def test_no_secret_is_reported_on_any_error(
    hosts: HostWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = tmp_path / "nats.conf"
    config.write_text('authorization { users: [ { user: "somebody", password: "else" } ] }')
    auths = {"registry.example.com": {"username": "puller", "password": PULL}}
    hosts.secret("creds", **{"nats.creds": f"-----BEGIN NATS USER JWT-----\n{TOKEN}\n------END NATS USER JWT------\n"})
    hosts.secret("registry", **{".dockerconfigjson": json.dumps({"auths": auths})})
    secrets = {"secretName": "creds", "registryCredentialsSecret": "registry"}
    with NatsServer(tmp_path / "nats", config=config) as server:
        async with hosts.service():
            address = f"nats://user:{PASSWORD}@127.0.0.1"
            hosts.create("refused", natsAddress=address, natsClientPort=server.port)
            hosts.create("unreadable", natsAddress=f"nats://user:{PASSWORD}@[bad", **secrets)
            for name in ("refused", "unreadable"):
                await eventually(
                    lambda name=name: hosts.condition(name, "HostsReporting")[:2] == ("Unknown", "LatticeUnreachable"),  # type: ignore[misc]
                    name,
                    seconds=PATIENCE,
                )
                await eventually(lambda name=name: hosts.find(DEPLOYMENTS, name), name, seconds=PATIENCE)  # type: ignore[misc]
            hosts.secret("registry", **{".dockerconfigjson": f'{{"auths": "{PULL}"}}'})
            await eventually(
                lambda: hosts.condition("unreadable", "Degraded")[0] == "True", "it is refused", seconds=PATIENCE
            )
            everything = reported(hosts, caplog)
    assert "LatticeUnreachable" in everything, "there is something to look at"
    for secret in (PASSWORD, TOKEN, PULL):
        assert secret not in everything
