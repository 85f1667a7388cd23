"""The behaviour of a host of wasmCloud v2 on NATS, as recorded; one suite for the stand-in and for the real runtime.

A subclass provides the fixtures ``url`` (of a nats-server), ``new_host`` (starts a host with a period of heartbeats in
seconds) and ``translate`` (returns the reference on this machine for one of the recordings). The recordings are in
tests/data/v2/host (record.py). Compared are fields, states and the names in messages, not sentences.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from support.suite.settling import settle
from support.v2.component_images import RECORDED
from trellis.v2.reasons import Reason

SECONDS: Final = 60.0
HOST: Final = json.loads((Path(__file__).parents[2] / "data/v2/host/host.json").read_text())
REGISTRY: Final = "127.0.0.1:25000"
CLOSED: Final = "127.0.0.1:25999"
"""No server listens there."""
NO_NAME: Final = "registry.invalid"
"""A name that does not exist."""
SILENT: Final = "127.0.0.1:25777"
"""A server accepts connections there and never answers."""
HOST_GROUP: Final = "default"
ENVIRONMENT: Final = "apps"
SLOW_PULL: Final = 0.5
"""Minimum seconds until a pull from SILENT fails."""
_OPTIONAL: Final = frozenset({"exports", "systemCpuUsage"})
"""Fields that proto3 JSON omits: the runtime on crates.io has no plugin that exports, and the load can be zero."""
Json = dict[str, Any]
Translate = Callable[[str], str]


@dataclass(frozen=True)
class Running:
    """A host that runs; ``address`` and ``port`` are those of HTTP. ``kill`` is the end of its process."""

    id: str
    friendly_name: str
    address: str
    port: int
    kill: Callable[[], Awaitable[None]]


class NewHost(Protocol):
    """Starts a host. ``heartbeat``: seconds between heartbeats; ``slow_pull``: the test waits for a pull to fail."""

    def __call__(self, heartbeat: float, *, slow_pull: bool = False) -> Awaitable[Running]: ...


class Operator:
    """A client of hosts, as upstream's operator is: requests, and the heartbeats since it connected."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.heartbeats: list[Msg] = []
        self._arrived = asyncio.Event()

    async def listen(self) -> None:
        """Collect heartbeats of all hosts."""

        async def receive(message: Msg) -> None:
            self.heartbeats.append(message)
            self._arrived.set()

        await self._client.subscribe("runtime.operator.heartbeat.>", cb=receive)
        await settle(self._client)

    async def heartbeat(self, host: str, nth: int = 1) -> Msg:
        """Wait for the nth published heartbeat of a host."""
        async with asyncio.timeout(SECONDS):
            while True:
                self._arrived.clear()
                found = [item for item in self.heartbeats if item.subject == f"runtime.operator.heartbeat.{host}"]
                if len(found) >= nth:
                    return found[nth - 1]
                await self._arrived.wait()

    async def request(self, host: str, command: str, payload: bytes = b"{}") -> Msg:
        """Return the reply of a host."""
        return await self._client.request(f"runtime.host.{host}.{command}", payload, timeout=SECONDS)

    async def has_no_responder(self, host: str) -> None:
        """Wait until the server has noticed that a host ended: until then it sends requests to nobody."""
        async with asyncio.timeout(SECONDS):
            while True:
                with contextlib.suppress(nats.errors.TimeoutError):
                    try:
                        await self._client.request(f"runtime.host.{host}.heartbeat", b"{}", timeout=0.5)
                    except nats.errors.NoRespondersError:
                        return

    async def status(self, host: str, command: str, request: Mapping[str, Any]) -> Json:
        """Return the status of a workload in the reply to a command."""
        reply = await self.request(host, f"workload.{command}", json.dumps(request).encode())
        found: Json = json.loads(reply.data)["workloadStatus"]
        return found

    async def counts(self, host: str) -> Json:
        """Return the counts of components and workloads in a heartbeat of now."""
        found = json.loads((await self.request(host, "heartbeat")).data)
        return {name: found[name] for name in ("componentCount", "workloadCount") if name in found}

    async def subjects_in_order(self, host: str, *requests: tuple[str, bytes]) -> list[str]:
        """Send requests at once; return the subjects of replies and heartbeats as the host sent them."""
        subjects: list[str] = []

        async def receive(message: Msg) -> None:
            if message.subject.startswith(("_INBOX.", "runtime.operator.heartbeat.")):
                subjects.append(message.subject)

        subscription = await self._client.subscribe(">", cb=receive)
        await self.replies_in_order(host, *requests)
        await settle(self._client)
        await subscription.unsubscribe()
        return subjects

    async def replies_in_order(self, host: str, *requests: tuple[str, bytes]) -> list[tuple[str, bytes]]:
        """Send requests at once; return the command and payload of each reply until the last request has its own."""
        arrived: list[tuple[str, bytes]] = []
        last = asyncio.Event()
        prefix = self._client.new_inbox()

        async def receive(message: Msg) -> None:
            number = int(message.subject.removeprefix(f"{prefix}."))
            arrived.append((requests[number][0], message.data))
            if number == len(requests) - 1:
                last.set()

        subscription = await self._client.subscribe(f"{prefix}.*", cb=receive)
        for number, (command, payload) in enumerate(requests):
            await self._client.publish(f"runtime.host.{host}.{command}", payload, reply=f"{prefix}.{number}")
        async with asyncio.timeout(SECONDS):
            await last.wait()
        await subscription.unsubscribe()
        return arrived


def conversation(name: str) -> list[Json]:
    """Return the exchanges of a recorded conversation by the beginning of its workload's name."""
    [found] = [talk["exchanges"] for talk in HOST["conversations"] if _name(talk).startswith(name)]
    return list(found)


def _name(talk: Json) -> str:
    """Return the name of a workload in its recording, without the parts that are random."""
    names = [
        exchange["request"]["workload"]["name"] for exchange in talk["exchanges"] if "workload" in exchange["request"]
    ]
    states = [
        exchange["reply"]["workloadStatus"]["workloadState"].rpartition("STATE_")[2] for exchange in talk["exchanges"]
    ]
    return "-".join([names[0].rsplit("-", 2)[0] if names else "unknown", *states]).lower()


@dataclass(frozen=True)
class Unrecorded:
    """A start that the real host refuses by its source, without a recording; trellis-v2-host runs it (ADR 113).

    ``component``, ``config`` (of HTTP): changes of the conversation ``svc-named``; ``reason``: in Trellis' words.
    """

    reason: Reason
    component: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    def request(self, translate: Translate) -> Json:
        """Return the request."""
        request: Json = json.loads(json.dumps(conversation("svc-named")[0]["request"]))
        world = request["workload"]["witWorld"]
        world["components"][0] |= self.component
        world["hostInterfaces"][0]["config"] |= self.config
        made: Json = translated(request, translate)
        return made


UNRECORDED: Final = {
    "an image that is not cached": Unrecorded(
        Reason.IMAGE_NOT_CACHED, component={"imagePullPolicy": "IMAGE_PULL_POLICY_NEVER"}
    ),
    "a host name with a wildcard": Unrecorded(Reason.HTTP_HOST_INVALID, config={"host": "*.svc-named.test"}),
    "a host name with a port": Unrecorded(Reason.HTTP_HOST_INVALID, config={"host": "svc-named.test:80"}),
    "an empty host name": Unrecorded(Reason.HTTP_HOST_INVALID, config={"host": ""}),
}


def translated(value: Any, translate: Translate) -> Any:
    """Return a request with the images of this machine."""
    if isinstance(value, list):
        return [translated(item, translate) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: translate(item) if key == "image" else translated(item, translate) for key, item in value.items()}


def names_in(request: Json, message: str, translate: Translate) -> Iterator[str]:
    """Yield the names that the recorded message of a request contains, so that each host's must."""
    world = request.get("workload", {}).get("witWorld", {})
    for component in world.get("components", []):
        image = component["image"]
        known = RECORDED.get(image.removeprefix(f"{REGISTRY}/"))
        yield from (translate(image) for name in (image,) if name in message)
        yield from (name for name in known.imports if name in message) if known else ()
    for interface in world.get("hostInterfaces", []):
        quoted = [f'"{name}"' for name in (interface["namespace"], interface["package"], *interface["interfaces"])]
        yield from (name for name in quoted if name in message)


def check_heartbeat(payload: bytes, host: Running) -> None:
    """Compare a heartbeat with the recorded one."""
    recorded, found = json.loads(HOST["heartbeats"]["answered"]), json.loads(payload)
    assert recorded.keys() - _OPTIONAL <= found.keys() <= recorded.keys() | {"componentCount", "workloadCount"}
    assert {key: type(found[key]) for key in found.keys() & recorded.keys()} == {
        key: type(recorded[key]) for key in found.keys() & recorded.keys()
    }
    assert (found["id"], found["friendlyName"]) == (str(uuid.UUID(host.id)), host.friendly_name)
    assert re.fullmatch(r"[a-z]+-[a-z]+-\d{4}", host.friendly_name)
    assert (found["hostname"], found["httpPort"]) == (host.address, host.port)
    assert (found["labels"], found["environment"]) == ({"hostgroup": HOST_GROUP}, ENVIRONMENT)
    assert datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", found["startedAt"])).utcoffset() is not None
    for interface in (*found["imports"], *found.get("exports", [])):
        assert {"namespace", "package", "interfaces"} <= interface.keys() <= {*recorded["imports"][1]}
        assert (interface["namespace"], interface["package"]) != ("wasi", "http")


def is_indented(payload: bytes) -> bool:
    """Return whether a payload is written as replies are; heartbeats that are published are on one line."""
    return payload.startswith(b'{\n  "')


class HostBehaviour:
    """The suite."""

    @pytest.fixture
    async def operator(self, url: str) -> AsyncIterator[Operator]:
        client = await nats.connect(url)
        try:
            operator = Operator(client)
            await operator.listen()
            yield operator
        finally:
            await client.close()

    @pytest.mark.parametrize("talk", [pytest.param(talk, id=_name(talk)) for talk in HOST["conversations"]])
    async def test_conversation(self, operator: Operator, new_host: NewHost, translate: Translate, talk: Json) -> None:
        host = await new_host(SECONDS, slow_pull=SILENT in json.dumps(talk))
        request: Json = {}
        for exchange in talk["exchanges"]:
            request = exchange["request"] if "workload" in exchange["request"] else request
            payload = json.dumps(translated(exchange["request"], translate)).encode()
            reply = await operator.request(host.id, exchange["command"], payload)
            assert is_indented(reply.data)
            assert reply.headers is None
            found, recorded = json.loads(reply.data), exchange["reply"]
            assert found.keys() == recorded.keys() == {"workloadStatus"}
            found, recorded = found["workloadStatus"], recorded["workloadStatus"]
            assert found.keys() == recorded.keys()
            assert {key: found[key] for key in ("workloadId", "workloadState")} == {
                key: recorded[key] for key in ("workloadId", "workloadState")
            }
            assert found["message"]
            wanted = set(names_in(request, recorded["message"], translate))
            assert {name for name in wanted if name not in found["message"]} == set()

    async def test_running_id_is_not_started_again(
        self, operator: Operator, new_host: NewHost, translate: Translate
    ) -> None:
        host = await new_host(SECONDS)
        request = translated(conversation("svc-named")[0]["request"], translate)
        reference = {"workloadId": request["workloadId"]}
        assert (await operator.status(host.id, "start", request))["workloadState"] == "WORKLOAD_STATE_RUNNING"
        again = await operator.status(host.id, "start", request)
        assert (again["workloadId"], again["workloadState"]) == (request["workloadId"], "WORKLOAD_STATE_ERROR")
        assert request["workloadId"] in again["message"]
        assert (await operator.status(host.id, "status", reference))["workloadState"] == "WORKLOAD_STATE_RUNNING"
        assert await operator.counts(host.id) == {"componentCount": "1", "workloadCount": "1"}

    async def test_workload_without_components_runs(self, operator: Operator, new_host: NewHost) -> None:
        host = await new_host(SECONDS)
        request = json.loads(json.dumps(conversation("svc-named")[0]["request"]))
        request["workload"]["witWorld"]["components"] = []
        for command, sent in (("start", request), ("status", {"workloadId": request["workloadId"]})):
            assert (await operator.status(host.id, command, sent))["workloadState"] == "WORKLOAD_STATE_RUNNING"
        assert await operator.counts(host.id) == {"workloadCount": "1"}

    async def test_stop_releases_the_id(self, operator: Operator, new_host: NewHost, translate: Translate) -> None:
        host = await new_host(SECONDS)
        failing = translated(conversation("widget-undeclared-error-error")[0]["request"], translate)
        working = translated(conversation("svc-named")[0]["request"], translate)
        identifier = {"workloadId": failing["workloadId"]}
        states = [
            (await operator.status(host.id, command, request))["workloadState"].rpartition("STATE_")[2]
            for command, request in (
                ("start", failing),
                ("stop", identifier),
                ("status", identifier),
                ("start", working | identifier),
                ("stop", identifier),
                ("stop", identifier),
            )
        ]
        assert states == ["ERROR", "STOPPING", "NOT_FOUND", "RUNNING", "STOPPING", "NOT_FOUND"]

    async def test_counts_are_strings_and_zeros_are_omitted(
        self, operator: Operator, new_host: NewHost, translate: Translate
    ) -> None:
        host = await new_host(SECONDS)
        seen = [await operator.counts(host.id)]
        for name in ("no-tag", "widget-undeclared-error-error", "svc-named"):
            request = translated(conversation(name)[0]["request"], translate)
            await operator.status(host.id, "start", request)
            seen.append(await operator.counts(host.id))
        assert seen == [{}, {}, {"workloadCount": "1"}, {"componentCount": "1", "workloadCount": "2"}]
        recorded = [{key: type(value) for key, value in counts.items()} for counts in HOST["heartbeats"]["counts"]]
        assert all({key: type(value) for key, value in counts.items()} in recorded for counts in seen)

    async def test_heartbeat_is_published_at_once_and_regularly(self, operator: Operator, new_host: NewHost) -> None:
        host = await new_host(0.2)
        first, third = await operator.heartbeat(host.id), await operator.heartbeat(host.id, nth=3)
        assert b"\n" not in HOST["heartbeats"]["published"].encode()
        for message in (first, third):
            assert b"\n" not in message.data
            assert message.headers is None
            check_heartbeat(message.data, host)
        assert json.loads(first.data)["startedAt"] == json.loads(third.data)["startedAt"]

    @pytest.mark.parametrize("payload", [b"", b"{}"], ids=["empty", "object"])
    async def test_heartbeat_is_answered(self, operator: Operator, new_host: NewHost, payload: bytes) -> None:
        host = await new_host(SECONDS)
        reply = await operator.request(host.id, "heartbeat", payload)
        assert is_indented(reply.data)
        assert is_indented(HOST["heartbeats"]["answered"].encode())
        assert reply.headers is None
        check_heartbeat(reply.data, host)

    @pytest.mark.parametrize("request_", [pytest.param(item, id=item["command"]) for item in HOST["unanswered"]])
    async def test_request_that_cannot_be_read_has_no_reply(
        self, operator: Operator, new_host: NewHost, request_: Json
    ) -> None:
        host = await new_host(SECONDS)
        sent = (request_["command"], request_["request"].encode())
        replies = await operator.replies_in_order(host.id, sent, ("heartbeat", b"{}"))
        assert [command for command, _ in replies] == ["heartbeat"]

    @pytest.mark.parametrize(
        "change",
        [
            {"other": 1},
            {"workload": {"other": 1}},
            {"workload": {"witWorld": {"other": 1}}},
            {"workload": {"witWorld": {"components": [{"image": "a", "other": 1}]}}},
            {"workload": None},
            {"workloadId": ""},
        ],
        ids=["request", "workload", "world", "component", "no workload", "no id"],
    )
    async def test_start_that_cannot_be_read_has_no_reply(
        self, operator: Operator, new_host: NewHost, change: Json
    ) -> None:
        host = await new_host(SECONDS)
        request = {**conversation("svc-named")[0]["request"], **change}
        reference = json.dumps({"workloadId": request["workloadId"]}).encode()
        sent = ("workload.start", json.dumps(request).encode())
        [(command, payload)] = await operator.replies_in_order(host.id, sent, ("workload.status", reference))
        assert command == "workload.status"
        assert json.loads(payload)["workloadStatus"]["workloadState"] == "WORKLOAD_STATE_NOT_FOUND"

    async def test_names_with_underscores_are_understood(
        self, operator: Operator, new_host: NewHost, translate: Translate
    ) -> None:
        host = await new_host(SECONDS)
        request = translated(conversation("svc-named")[0]["request"], translate)
        world = request["workload"].pop("witWorld")
        snake = {"components": world["components"], "host_interfaces": world["hostInterfaces"]}
        start = {"workload_id": request["workloadId"], "workload": {**request["workload"], "wit_world": snake}}
        found = await operator.status(host.id, "start", start)
        assert (found["workloadId"], found["workloadState"]) == (request["workloadId"], "WORKLOAD_STATE_RUNNING")

    async def test_slow_pull_delays_other_replies(
        self, operator: Operator, new_host: NewHost, translate: Translate
    ) -> None:
        host = await new_host(SECONDS, slow_pull=True)
        slow = translated(conversation("blackhole")[0]["request"], translate)
        sent = ("workload.start", json.dumps(slow).encode())
        replies = await operator.replies_in_order(host.id, sent, ("heartbeat", b"{}"))
        assert [command for command, _ in replies] == ["workload.start", "heartbeat"]

    async def test_slow_pull_delays_heartbeats(
        self, operator: Operator, new_host: NewHost, translate: Translate
    ) -> None:
        host = await new_host(SLOW_PULL / 10, slow_pull=True)
        slow = translated(conversation("blackhole")[0]["request"], translate)
        sent = ("heartbeat", b"{}"), ("workload.start", json.dumps(slow).encode())
        subjects = await operator.subjects_in_order(host.id, *sent)
        first, last = (index for index, subject in enumerate(subjects) if subject.startswith("_INBOX."))
        assert last - first <= 5, "half of the heartbeats that are due during the pull"
        await operator.heartbeat(host.id, nth=len(operator.heartbeats) + 2)

    async def test_hosts_have_identities_of_their_own(self, operator: Operator, new_host: NewHost) -> None:
        hosts = [await new_host(SECONDS) for _ in range(2)]
        assert hosts[0].id != hosts[1].id
        for host in hosts:
            check_heartbeat((await operator.request(host.id, "heartbeat")).data, host)

    async def test_ended_host_has_no_responder(self, operator: Operator, new_host: NewHost) -> None:
        host, witness = await new_host(SECONDS), await new_host(SECONDS)
        await host.kill()
        await operator.has_no_responder(host.id)
        check_heartbeat((await operator.request(witness.id, "heartbeat")).data, witness)
