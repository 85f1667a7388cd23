"""docs/quickstart.md: who types its commands about the lattice sees what it shows; all services of a lattice run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.examples.applied_examples import Kubectl
from support.lattices.reflected import ReflectedWorld
from support.wadm.application_world import ApplicationWorld
from support.wadm.wadm_stand_in import WadmStandIn
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

PAGE = (Path(__file__).parents[3] / "docs/quickstart.md").read_text()
HELLO = "hello"


def shown(command: str) -> str:
    """Return what the page says that a command prints."""
    found = re.search(rf"```console\n\$ {re.escape(command)}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, f"the page does not show {command}"
    return found[1]


def table(text: str) -> list[list[str]]:
    """Return the headings of a listing and the names of what it lists: the rest is a run's own."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]
    return [row if row[0] == "NAME" else row[:1] for row in rows]


async def test_the_lattice_and_its_application_are_listed_as_the_page_shows(
    apps: ApplicationWorld, kubectl: Kubectl, nats_server: NatsServer
) -> None:
    command = "kubectl -n hello get wasmcloudhostconfigs,applications.core.oam.dev,services"
    wanted, world = shown(command), ReflectedWorld(apps.hosts, nats_server)
    async with WadmStandIn(nats_server.url, apps.lattice), apps.hosts.service(), apps.manager():
        await apps.hosts.settled("hosts")
        kubectl.apply(HELLO)
        await apps.synced(HELLO)
        async with world.reflector():  # it asks at its start: the stand-in says no events
            await world.has_service(HELLO, 8080)
        output = kubectl(*shlex.split(command)[1:])
    world.clean_up()
    assert table(output) == table(wanted), output
