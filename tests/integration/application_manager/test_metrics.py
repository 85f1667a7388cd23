"""Metrics of lattices whose applications are synced: a real API server, a real NATS, a stand-in for wadm."""

from __future__ import annotations

import asyncio

import pytest

from support.lattices.host_world import PATIENCE
from support.nodes.fleet import eventually
from support.wadm.application_world import ApplicationWorld, spec
from support.wadm.wadm_stand_in import WadmStandIn
from trellis.events.subjects import APPLICATION_MANAGER
from trellis.runtime.run import LedService
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]

OBJECTS, AGE = "trellis_lattice_application_objects", "trellis_lattice_synced_age_seconds"
OWNED, LINKED = "trellis_lattice_owned", "trellis_lattice_connected"


def measured(service: LedService, name: str, lattice: str, **labels: str) -> float | None:
    """Return a gauge of a lattice, None if there is none."""
    wanted = {"service": APPLICATION_MANAGER, "lattice": lattice} | labels
    for family in service.telemetry.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == name and wanted.items() <= sample.labels.items():
                return float(sample.value)
    return None


async def test_each_lattice_is_measured_while_its_applications_are_kept(
    apps: ApplicationWorld, stand_in: WadmStandIn, nats_server: NatsServer
) -> None:
    apps.group()
    async with apps.manager() as service:

        def phases() -> dict[str, float | None]:
            found = ("Deployed", "Failed", "Undeployed", "Reconciling", "Waiting", "Unhealthy", "Unknown")
            counts = {phase: measured(service, OBJECTS, apps.lattice, phase=phase) for phase in found}
            return {phase: count for phase, count in counts.items() if count != 0}

        for name, shown_phase in (("one", "deployed"), ("two", "deployed"), ("three", "failed")):
            apps.apply(name, spec())
            await apps.synced(name)
            await stand_in.publish(name, shown_phase, "no host fits" if shown_phase == "failed" else "")
        expected = {"Deployed": 2.0, "Failed": 1.0}
        await eventually(lambda: phases() == expected, f"{expected}", seconds=PATIENCE)
        assert measured(service, OWNED, apps.lattice) == 1
        assert measured(service, LINKED, apps.lattice) == 1
        await eventually(lambda: (measured(service, AGE, apps.lattice) or 60) < 8, "it is new", seconds=PATIENCE)
        await asyncio.to_thread(nats_server.kill)
        try:
            await eventually(lambda: measured(service, LINKED, apps.lattice) == 0, "not linked", seconds=PATIENCE)
            await eventually(lambda: (measured(service, AGE, apps.lattice) or 0) > 8, "it ages", seconds=PATIENCE)
            assert phases() == expected
            assert measured(service, OWNED, apps.lattice) == 1  # a claim outlasts an outage
        finally:
            await asyncio.to_thread(nats_server.start)
        await eventually(lambda: measured(service, LINKED, apps.lattice) == 1, "linked again", seconds=PATIENCE)
        await eventually(lambda: (measured(service, AGE, apps.lattice) or 60) < 8, "new again", seconds=PATIENCE)
        apps.hosts.clean_up()
        names = (OBJECTS, AGE, OWNED, LINKED)
        await eventually(
            lambda: [measured(service, name, apps.lattice) for name in names] == [None] * 4, "gone", seconds=PATIENCE
        )
