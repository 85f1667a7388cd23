"""`trellis dead-letters` and `trellis events replay`, run as a user runs them, on a bus full of dead letters and
garbage.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import NotFoundError

from support.nats.buses import Buses, Listener, eventually_async, opted_out
from support.nats.raw_nats import ODD_BODIES, ODD_HEADERS, ODD_TOKENS, raw_publish
from support.suite.typed import Done, bare_environment, typed
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis_dev.localcluster.nats import NatsServer

# Each command is a process of its own.
pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

NOWHERE = "nats://127.0.0.1:1"
TRACE = "0af7651916cd43dd8448eb211c80319c"


@dataclass(frozen=True)
class Commands:
    """A server of its own, and the command line that looks at it."""

    server: NatsServer

    def run(self, *arguments: str, **environment: str) -> Done:
        return typed(bare_environment(TRELLIS_NATS_URL=self.server.url) | environment, *arguments)

    def run_before(self, reader: str, *arguments: str) -> Done:
        """Run a command whose output another program reads; the exit status is that of the command."""
        line = f"{sys.executable} -m trellis_cli {' '.join(arguments)} | {reader}; exit ${{PIPESTATUS[0]}}"
        environment = bare_environment(TRELLIS_NATS_URL=self.server.url)
        return subprocess.run(
            ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def json(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        done = self.run(*arguments, "-o", "json")
        assert (done.returncode, done.stderr) == (status, ""), done.stdout
        document: dict[str, Any] = json.loads(done.stdout)
        return document


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with NatsServer(tmp_path / "nats") as server:
        yield Commands(server)


async def dead(commands: Commands) -> int:
    client = await nats.connect(commands.server.url)
    try:
        return (await client.jetstream().stream_info(STREAM_DEAD)).state.messages
    except NotFoundError:
        return -1
    finally:
        await client.close()


async def two_poisons_and_an_event(commands: Commands) -> None:
    """Dead letters 1 (in a trace) and 2 (too large to be kept whole), of cluster c1; and an event that is none."""
    buses = Buses(commands.server.url, "c1")
    bus = await buses.consuming(Listener(), NodeOptedOut)
    client = await nats.connect(commands.server.url)
    traceparent = f"00-{TRACE}-b7ad6b7169203331-01"
    await client.jetstream().publish(
        event_subject("c1", opted_out("n.1")), b'{"a": "\xc3\xa9"}', headers={"traceparent": traceparent}
    )

    async def dead_letters(count: int) -> bool:
        return await dead(commands) == count

    await eventually_async(lambda: dead_letters(1))
    await client.jetstream().publish(event_subject("c1", opted_out("n.2")), b"x" * (client.max_payload - 10))
    await eventually_async(lambda: dead_letters(2))
    await bus.publish(opted_out("healthy"), dedup="healthy")
    await client.close()
    await buses.close()


async def test_dead_letters_are_listed_shown_and_replayed(commands: Commands) -> None:
    await two_poisons_and_an_event(commands)
    found = commands.json("dead-letters", "list")
    assert [(letter["sequence"], letter["key"], letter["obstacle"] == "") for letter in found["letters"]] == [
        (1, ["n.1"], True),
        (2, ["n.2"], False),
    ]
    first = found["letters"][0]
    assert (first["cluster"], first["service"], first["subscription"]) == ("c1", "provisioner", "nodes")
    assert (first["reason"], first["deliveries"], first["trace_id"]) == ("Unparseable", 1, TRACE)
    table = commands.run("dead-letters", "list", "--service", "provisioner", "--reason", "unparseable")
    assert table.returncode == 0
    rows = [line.split() for line in table.stdout.splitlines()]
    assert rows[1][:1] + rows[1][3:6] == ["1", "provisioner/nodes", "Unparseable", "1"]
    assert table.stdout.splitlines()[-1].startswith("2 dead letters (2 Unparseable)")

    page = commands.run("dead-letters", "show", "1").stdout
    assert f"trace        {TRACE}" in page
    assert '"a": "é"' in page
    whole = commands.json("dead-letters", "show", "1")
    assert (whole["body"], whole["headers"]["traceparent"][3:35]) == ({"a": "é"}, TRACE)
    cut = commands.json("dead-letters", "show", "2")
    assert cut["truncated"]
    assert cut["obstacle"]
    assert cut["obstacle"] in " ".join(commands.run("dead-letters", "show", "2").stdout.split())

    dry = commands.json("dead-letters", "replay", "--all", "--dry-run", status=1)
    assert [line["outcome"] for line in dry["letters"]] == ["WouldReplay", "NotReplayed"]
    assert len(commands.json("dead-letters", "list")["letters"]) == 2, "nothing was done"
    done = commands.json("dead-letters", "replay", "1", "2", "7", status=1)
    assert [(line["sequence"], line["outcome"]) for line in done["letters"]] == [
        (1, "Replayed"),
        (2, "NotReplayed"),
        (7, "NotReplayed"),
    ]
    replayed, whole, absent = done["letters"]
    assert replayed["subject"] == "trellis.evt.c1.node.opted_out.n=2E1"
    assert whole["message"] == cut["obstacle"]
    assert "`trellis dead-letters list`" in absent["message"]
    assert [letter["sequence"] for letter in commands.json("dead-letters", "list")["letters"]] == [2]
    assert commands.json("dead-letters", "replay", "--all", "--noun", "rollout")["letters"] == []
    deleted = commands.run("dead-letters", "show", "1")
    assert (deleted.returncode, deleted.stdout, deleted.stderr.count("\n")) == (1, "", 1)
    assert deleted.stderr.startswith("Error: ")
    assert "letter 1" in deleted.stderr


async def test_events_of_the_past_are_shown_by_time_subject_and_trace(commands: Commands) -> None:
    await two_poisons_and_an_event(commands)
    every = commands.run("events", "replay")
    assert (every.returncode, every.stderr) == (0, "Note: 3 events shown, 3 read\n")
    assert [line.split()[1:3] for line in every.stdout.splitlines()] == [
        ["node.opted_out", "n.1"],
        ["node.opted_out", "n.2"],
        ["node.opted_out", "healthy"],
    ]
    traced = commands.run("events", "replay", "--trace", TRACE[:8].upper(), "-o", "json")
    assert (traced.stdout, traced.stderr) == ('{"a":"é"}\n', "Note: 1 events shown, 3 read\n")
    item = commands.run("events", "replay", "--subject", "*.*.n=2E2", "--cluster", "c1", "-o", "json")
    assert json.loads(item.stdout)["unreadable"] is True
    none = commands.run("events", "replay", "--until", "1h", "--noun", "node")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "Note: 0 events shown, 0 read\n")
    ended = commands.run("events", "tail", "--since", "1h", "--until", "1s", "--subject", "node.>")
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_a_replay_whose_reader_has_ended_ends_quietly(commands: Commands) -> None:
    await two_poisons_and_an_event(commands)
    done = await asyncio.to_thread(commands.run_before, "true", "events", "replay")
    assert (done.returncode, done.stderr) == (141, "")


async def test_the_events_of_a_lattice_are_shown_unchanged(commands: Commands) -> None:
    buses = Buses(commands.server.url, "c1")
    bus = buses.new("host_manager")
    await bus.connect()
    published = json.dumps({"id": "1", "source": "wadm", "data": {"metadata": {"name": "shop"}}}).encode()
    stopped = json.dumps({"id": "2", "source": "N1", "data": {"host_id": "N1", "provider_id": "http"}}).encode()
    await bus.copy("default", "manifest_published", published, dedup="1")
    await bus.copy("default", "provider_stopped", stopped, dedup="2")
    await bus.copy("default", "provider_stopped", stopped, dedup="2")
    await bus.copy("other", "manifest_published", b"{}", dedup="3")
    await bus.publish(opted_out("n"), dedup="n")
    await buses.close()
    shown = commands.run("events", "replay", "--lattice", "default")
    assert (shown.returncode, re.findall(r"\d+", shown.stderr)) == (0, ["2", "2"])
    assert [line.split()[1:] for line in shown.stdout.splitlines()] == [
        ["lattice.manifest_published", "default", "wadm", "-", "name=shop"],
        ["lattice.provider_stopped", "default", "N1", "-", "provider_id=http", "host_id=N1"],
    ]
    tailed = commands.run("events", "tail", "--lattice", "default", "--since", "1h", "--until", "0s", "-o", "json")
    assert [json.loads(line)["id"] for line in tailed.stdout.splitlines()] == ["1", "2"]
    both = commands.run("events", "tail", "--lattice", "default", "--noun", "node")
    assert both.returncode == 2
    assert "--lattice: " in both.stderr
    assert "--noun" in both.stderr


async def test_garbage_breaks_nothing(commands: Commands) -> None:
    buses = Buses(commands.server.url, "c1")
    await buses.new().connect()
    port, count = commands.server.port, 0
    for token in ODD_TOKENS.values():
        raw_publish(port, b"trellis.dead.c1.s.node." + token, b"by hand")
        raw_publish(port, b"trellis.evt.c1.node.gone." + token, b"by hand")
        count += 1
    for headers in ODD_HEADERS.values():
        raw_publish(port, b"trellis.dead.c1.s.node.x", b"{}", headers)
        raw_publish(port, b"trellis.evt.c1.node.gone.x", b"{}", headers)
        count += 1
    for body in ODD_BODIES.values():
        raw_publish(port, b"trellis.dead.x", body)
        raw_publish(port, b"trellis.evt.x", body)
        count += 1
    await buses.close()
    assert len(commands.json("dead-letters", "list")["letters"]) == count
    for arguments in (["dead-letters", "list"], ["events", "tail", "--since", "1h", "--until", "0s"]):
        shown = commands.run(*arguments)
        assert shown.returncode == 0, shown.stderr
        assert all(char.isprintable() or char == "\n" for char in shown.stdout), arguments
    lines = commands.run("events", "replay", "-o", "json").stdout.splitlines()
    assert len([json.loads(line) for line in lines]) == count
    lone_surrogate = list(ODD_TOKENS).index("lone surrogate") + 1
    assert commands.json("dead-letters", "show", str(lone_surrogate))["key"] == ["\\ud800"]
    refused = commands.json("dead-letters", "replay", "--all", status=1)
    assert (refused["replayed"], refused["not_replayed"]) == (0, count)


@pytest.mark.parametrize("arguments", ["dead-letters replay --all", "events replay"])
def test_without_a_bus_or_its_streams_it_is_one_line(commands: Commands, arguments: str) -> None:
    unavailable = commands.run(*arguments.split(), TRELLIS_NATS_URL=NOWHERE)
    assert (unavailable.returncode, unavailable.stdout) == (1, "")
    assert unavailable.stderr.startswith("Error: ")
    assert NOWHERE in unavailable.stderr
    empty = commands.run(*arguments.split())
    assert empty.returncode == 1
    assert f"stream {STREAM_EVENTS if arguments.startswith('events') else STREAM_DEAD}" in empty.stderr
    assert (unavailable.stderr.count("\n"), empty.stderr.count("\n")) == (1, 1)
