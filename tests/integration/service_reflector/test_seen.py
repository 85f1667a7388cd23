"""Output about Services: `trellis explain`, `trellis status`, metrics."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from service_reflector.timings import Timings
from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.suite.typed import bare_environment, typed_meanwhile
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis.runtime.run import LedService

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


async def trellis(world: ReflectedWorld, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a command; return its exit status and its JSON."""
    info = world.hosts.fleet.info
    environment = bare_environment(
        TRELLIS_KUBECONFIG=str(info.kubeconfig),
        TRELLIS_NAMESPACE=world.hosts.fleet.system,
        TRELLIS_CLAIM_NAMESPACE=world.hosts.fleet.system,
        TRELLIS_NATS_URL=str(info.nats_url),
    )
    done = await typed_meanwhile(environment, *arguments, "-o", "json")
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


async def explained(world: ReflectedWorld, name: str, *wanted: tuple[str, bool | None, str]) -> None:
    """Wait until the explanation of a Service has these steps: what about, if that is well, and a name in its text.

    It ends with 0 only if nothing is to be explained.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            code, found = await trellis(world, "explain", f"service/{name}", "-n", world.namespace)
            assert code == (0 if found["ok"] else 1)
            steps = [((line["about"], line["ok"]), line["text"]) for line in found["lines"]]
            if all(
                any((*step, named in text) == (about, ok, True) for step, text in steps) for about, ok, named in wanted
            ):
                return


async def test_it_is_explained_why_a_service_leads_nowhere(world: ReflectedWorld) -> None:
    world.group("group", "why-lattice")
    scaler = {"type": "spreadscaler", "properties": {"spread": [{"name": "a", "requirements": {"zone": "a"}}]}}
    async with world.wadm("why-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("why", capability("httpserver", link(), scaler)))
        await wadm.deploy(manifest("loop", capability("httpserver", link("127.0.0.1:80"), ANY_HOST)))
        await world.has_service("why", 8080)
        await explained(world, "why", ("hosts", False, ""), ("application", None, "why of lattice why-lattice"))
        _, status = await trellis(world, "status")
        assert f"{world.namespace}/why" in status["reflected_services"]["without_endpoints"]
        world.pod("group", "host-1")
        await explained(world, "why", ("host", False, "zone=a"))
        address = world.pod("group", "host-2", zone="a")
        await world.leads_to("why", address)
        await explained(
            world, "why", ("host", True, address), ("endpoints", True, "1 of 1"), ("service-reflector", True, "")
        )
        await explained(world, "loop", ("service", False, '"loop"'), ("event", False, "LoopbackAddress"))
        await explained(world, "never", ("service", False, '"never"'), ("hint", None, ""))


def measured(service: LedService, name: str, lattice: str) -> float | None:
    """Return a gauge of a lattice, None if there is none."""
    for family in service.telemetry.metrics.registry.collect():
        for sample in family.samples:
            if (sample.name, sample.labels.get("lattice")) == (name, lattice):
                return float(sample.value)
    return None


async def test_each_lattice_is_measured_while_it_is_followed(world: ReflectedWorld) -> None:
    world.group("group", "seen-lattice")
    async with world.wadm("seen-lattice") as wadm, world.reflector(Timings(group_grace=1.0)) as service:

        def shows(applications: int, services: int) -> bool:
            names = ("trellis_lattice_applications", "trellis_lattice_services")
            return tuple(measured(service, name, "seen-lattice") for name in names) == (applications, services)

        await wadm.deploy(manifest("one"))
        await wadm.deploy(manifest("two", capability("httpserver", link("127.0.0.1:80"), ANY_HOST)))
        await eventually(lambda: shows(2, 1), "two applications, one Service", seconds=PATIENCE)
        silent = measured(service, "trellis_lattice_seconds_since_last_message", "seen-lattice")
        assert silent is not None
        wadm.answers = False
        await eventually(
            lambda: (measured(service, "trellis_lattice_seconds_since_last_message", "seen-lattice") or 0) > 3,
            "silence is measured",
            seconds=PATIENCE,
        )
        await wadm.undeploy("two")
        await eventually(lambda: shows(1, 1), "one is left", seconds=PATIENCE)
        world.hosts.clean_up()
        await eventually(
            lambda: measured(service, "trellis_lattice_services", "seen-lattice") is None, "gone", seconds=PATIENCE
        )
