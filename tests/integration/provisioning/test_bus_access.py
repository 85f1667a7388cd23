"""`trellis run` on a bus that lets in only who it knows, and under a name that another cluster has."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from support.nats.buses import eventually_async
from support.nats.nats_users import NatsUsers
from support.nodes.fleet import Fleet
from support.suite.service_process import free_port, get_status, lines, running, until_status
from support.suite.typed import Done, typed
from trellis.bus.accounts.claim import Claim
from trellis.bus.accounts.naming import CLAIM_STREAM, claim_subject
from trellis.bus.accounts.permissions import CLI
from trellis.bus.connection.connection import REFUSED
from trellis.bus.streams.streams import ensure_streams
from trellis.events.subjects import STREAM_EVENTS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.fixture
def users(fleet: Fleet, tmp_path: Path) -> NatsUsers:
    return NatsUsers(tmp_path, [fleet.id])


@pytest.fixture
def guarded(users: NatsUsers, tmp_path: Path) -> Iterator[NatsServer]:
    """A server that lets in the users of this test's cluster only."""
    with NatsServer(tmp_path / "guarded", config=users.config) as server:
        yield server


def trellis(*arguments: str, **environment: str) -> Done:
    return typed({**os.environ, **environment}, *arguments)


def events_of(shown: Done) -> int:
    """Return how many events there are, as `trellis status` shows it; 0 while there is no stream."""
    streams = (json.loads(shown.stdout).get("bus") or {}).get("streams") or ()
    return sum(each["messages"] for each in streams if each["name"] == STREAM_EVENTS)


@pytest.mark.thorough
async def test_services_of_one_process_are_let_in_each_by_its_own_key_and_people_read_along(
    fleet: Fleet, users: NatsUsers, guarded: NatsServer, tmp_path: Path
) -> None:
    log, port = tmp_path / "log", free_port()
    pattern = tmp_path / f"{{service}}.{fleet.id}.nk"
    async with running(
        log, **fleet.environment(nats_url=guarded.url, nats_nkey_file=pattern, health_port=port)
    ) as process:
        # What a node was before the bus was there is not said afterwards.
        await until_status(port, "/readyz", 200)
        await fleet.all_provisioned(fleet.add("node"))
        assert process.returncode is None
        cli_user = users.seed_file(CLI)
        users_of = fleet.environment(nats_url=guarded.url, nats_nkey_file=cli_user)
        # A node is labelled before its facts are on the bus.
        async with asyncio.timeout(60):
            while events_of(await asyncio.to_thread(trellis, "status", "-o", "json", **users_of)) < 4:
                assert process.returncode is None
    assert not [line for line in lines(log) if line["level"] == "error"]
    assert not [line for line in lines(log) if line["logger"].startswith("trellis.bus.") and line["level"] == "warning"]
    shown = trellis("status", "-o", "json", **users_of)
    streams = {each["name"]: each["messages"] for each in json.loads(shown.stdout)["bus"]["streams"]}
    assert streams[STREAM_EVENTS] >= 4, shown.stderr
    nobody = trellis("status", "-o", "json", **fleet.environment(nats_url=guarded.url))
    assert REFUSED in json.loads(nobody.stdout)["bus"]["problem"]


def test_a_key_file_that_cannot_be_used_is_one_line_and_the_end(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "nobody.nk"
    ended = trellis("run", "provisioner", **fleet.environment(nats_nkey_file=path))
    assert ended.returncode == 2
    assert ended.stderr.startswith("Error: TRELLIS_NATS_NKEY_FILE: ")
    assert ended.stderr.count("\n") == 1
    assert f"'{path}'" in ended.stderr


@pytest.mark.thorough
async def test_under_a_claimed_name_nodes_are_provisioned_nothing_is_published_and_readiness_states_the_reason(
    fleet: Fleet, tmp_path: Path
) -> None:
    log, port = tmp_path / "log", free_port()
    client = await nats.connect(fleet.info.nats_url)
    jetstream = client.jetstream()
    await ensure_streams(jetstream)
    await Claim(fleet.id, "uid-of-another", "provisioner").hold(jetstream)
    [name] = fleet.add("node")
    async with running(log, **fleet.environment(health_port=port)):
        await fleet.all_provisioned([name], seconds=40)
        _, body = await get_status(port, "/readyz")
        for part in (fleet.id, "uid-of-another", fleet.cluster_uid(), "TRELLIS_CLUSTER"):
            assert part in body
        assert (await get_status(port, "/livez"))[0] == 200
        assert await publish_counts(jetstream, fleet.id) == {}
        await jetstream.publish(claim_subject(fleet.id), b"", headers={"KV-Operation": "DEL"})
        await until_status(port, "/readyz", 200)
        await eventually_async(lambda: publish_counts(jetstream, fleet.id))
    entry = await jetstream.get_last_msg(CLAIM_STREAM, claim_subject(fleet.id))
    assert json.loads(entry.data or b"")["uid"] == fleet.cluster_uid()
    await client.close()


async def publish_counts(jetstream: Any, cluster: str) -> dict[str, int]:
    info = await jetstream.stream_info(STREAM_EVENTS, subjects_filter=f"trellis.evt.{cluster}.>")
    return info.state.subjects or {}
