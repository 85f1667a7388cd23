"""The command line on a bus with users: users get the permissions that they need, and others a message about missing
ones.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.nats.buses import Buses, Listener, eventually_async, opted_out
from support.nats.nats_users import NatsUsers
from support.suite.tiers import first_of
from support.suite.typed import Done, typed
from trellis.bus.accounts.permissions import CLI, CLI_INBOX, OUTSIDE
from trellis.bus.connection.connection import REFUSED
from trellis.bus.connection.user_client import UserClient
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import STREAM_DEAD, event_subject
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]


@dataclass(frozen=True)
class Commands:
    """A bus with one published event and one dead letter; ``trellis`` runs a command on it as a user."""

    server: NatsServer
    users: NatsUsers

    def trellis(self, user: str | None, *arguments: str) -> Done:
        own = {"TRELLIS_NATS_NKEY_FILE": str(self.users.credentials(user).path)} if user else {}
        return typed({**os.environ, "TRELLIS_NATS_URL": self.server.url, **own}, *arguments)


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[Commands]:
    users = NatsUsers(tmp_path, ["c1"])
    with NatsServer(tmp_path / "server", config=users.config) as server:
        buses = Buses(server.url, "c1")
        watcher = buses.new("node_watcher", credentials=users.credentials("node_watcher.c1"))
        provisioner = buses.new("provisioner", credentials=users.credentials("provisioner.c1"))
        provisioner.subscribe("nodes", [NodeOptedOut], Listener())
        for bus in (watcher, provisioner):
            await bus.connect()
            await bus.start()
        await watcher.publish(opted_out("good"), dedup="good")
        cli_user = UserClient(users.credentials(CLI))
        await cli_user.connect(server.url, inbox_prefix=CLI_INBOX)
        await cli_user.jetstream().publish(event_subject("c1", opted_out("poison")), b"poison")

        async def buried() -> bool:
            return (await cli_user.jetstream().stream_info(STREAM_DEAD)).state.messages == 1

        await eventually_async(buried)
        await cli_user.close()
        await buses.close()
        yield Commands(server, users)


async def test_users_read_events_and_read_replay_and_remove_dead_letters(commands: Commands) -> None:
    events = await asyncio.to_thread(commands.trellis, CLI, "events", "replay", "-o", "json")
    assert events.returncode == 0, events.stderr
    assert '"good"' in events.stdout
    listed = await asyncio.to_thread(commands.trellis, CLI, "dead-letters", "list", "-o", "json")
    assert "poison" in listed.stdout, listed.stderr
    replayed = await asyncio.to_thread(commands.trellis, CLI, "dead-letters", "replay", "--all")
    assert replayed.returncode == 0, replayed.stderr
    again = await asyncio.to_thread(commands.trellis, CLI, "dead-letters", "list", "-o", "json")
    assert "poison" not in again.stdout
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("user", first_of([OUTSIDE, "node_watcher.c1", None]))
async def test_a_user_other_than_cli_is_informed_of_missing_permissions(commands: Commands, user: str | None) -> None:
    lacks = r'subscribe .*"\S+"' if user else REFUSED
    for command in (("dead-letters", "list"), ("dead-letters", "replay", "1"), ("events", "replay")):
        ended = await asyncio.to_thread(commands.trellis, user, *command)
        assert ended.returncode == 1
        assert re.search(lacks, ended.stderr), ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1
