"""`trellis top` reads wasmCloud v2 from the watches of the console, and waits for heartbeats that it receives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.explained import bare, fill
from support.v2.received import Received
from trellis.kube.transport import HttpRequest
from trellis.read_model.health import Health
from trellis.v2.timings import V2Timings
from trellis_cli.common.output import Format
from trellis_cli.common.settings import ClientSettings
from trellis_cli.top import command
from trellis_cli.top.command import Arguments
from trellis_cli.top.model import Kind, Wanted, counts, rows
from trellis_dev.fakes.fake import FakeKube, status_reply

HOST = "whost/wasmcloud-system/uppity-son-5573"


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> FakeKube:
    found = bare()

    @asynccontextmanager
    async def connected(_settings: ClientSettings) -> AsyncIterator[FakeKube]:
        yield found

    monkeypatch.setattr(command, "connected", connected)
    return found


def asked(kind: Kind | None = None) -> Arguments:
    return Arguments(kind, (), Wanted())


async def test_its_objects_are_read_with_health_and_printed_for_programs(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(kube, "03", 2.2)
    entities = await command._read(ClientSettings(), asked(Kind.V2_DEPLOYMENTS))
    command._print(entities, asked(Kind.V2_DEPLOYMENTS), Format.JSON, no_headers=False)
    printed = json.loads(capsys.readouterr().out)
    assert [*printed["entities"]] == ["workloaddeployment/apps/hello"]
    assert printed["lacking"] == []
    assert entities[HOST]["cpu_percent"] is None


@pytest.mark.usefixtures("kube")
async def test_a_cluster_without_it_is_read_without_its_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    entities = await command._read(ClientSettings(), asked())
    assert not [id_ for id_ in entities if id_.startswith(("whost/", "part/whosts"))]
    command._print(entities, asked(Kind.V2_HOSTS), Format.JSON, no_headers=False)
    assert json.loads(capsys.readouterr().out) == {"entities": {}, "lacking": []}


@pytest.mark.usefixtures("kube")
async def test_it_is_named_only_to_users_that_ask_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    entities = await command._read(ClientSettings(), asked())
    for kind, named in ((None, False), (Kind.V2_HOSTS, True)):
        command._print(entities, asked(kind), Format.TABLE, no_headers=False)
        printed = capsys.readouterr()
        assert ("v2" in printed.out + printed.err) is named


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_kind_that_cannot_be_read_ends_with_an_error(
    kube: FakeKube, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    fill(kube, "03", 2.2)

    def refused(request: HttpRequest) -> bool:
        return request.path.endswith("/hosts") and ("watch" in request.query) is (verb == "watch")

    kube.answer_next(99, lambda _: status_reply(403, "Forbidden", "hosts is forbidden"), when=refused)
    entities = await command._read(ClientSettings(), asked(Kind.V2_HOSTS))
    with pytest.raises(SystemExit):
        command._print(entities, asked(Kind.V2_HOSTS), Format.JSON, no_headers=False)
    [lacks] = json.loads(capsys.readouterr().out)["lacking"]
    assert lacks["part"] == "whosts"
    assert lacking(lacks["message"], f"{verb} hosts") == []


@pytest.mark.parametrize("kind", [None, Kind.V2_HOSTS])
async def test_numbers_of_hosts_come_from_heartbeats(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch, kind: Kind | None
) -> None:
    fill(kube, "03", 2.2)
    opened: list[Any] = []

    def received(settings: ClientSettings, _name: str) -> Received:
        opened.append(settings.v2_nats)
        return Received("03", 2.2)

    monkeypatch.setattr(command, "heartbeats_of", received)
    monkeypatch.setattr(command, "_HEARTBEATS", V2Timings(heartbeat=0.1, slack=0.1))
    entities = await command._read(ClientSettings(v2_nats="nats://v2:4222"), asked(kind))
    assert opened == ["nats://v2:4222"]
    assert isinstance(entities[HOST]["cpu_percent"], int)


async def test_services_of_workloads_are_among_the_services(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    fill(kube, "09", 30)
    entities = await command._read(ClientSettings(), asked(Kind.SERVICES))
    [row] = [row for row in rows(Kind.SERVICES, entities, Wanted()) if "svc-unnamed" in row.id]
    assert row.state == Health.DEGRADED
    assert row.explained == "service/apps/svc-unnamed"
    assert counts(Kind.SERVICES, entities)[Health.DEGRADED] > 0
    command._print(entities, asked(Kind.SERVICES), Format.NAME, no_headers=False)
    assert "service/svc-unnamed" in capsys.readouterr().out.split()
    for output in (Format.TABLE, Format.JSON):
        command._print(entities, asked(Kind.SERVICES), output, no_headers=False)
        assert "svc-named" in capsys.readouterr().out
