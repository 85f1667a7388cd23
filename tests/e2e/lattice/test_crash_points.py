"""Services die at each boundary between a message and its acknowledgement, one crash in each run, and all in one.

Beside a real wadm, from which the services of a lattice receive as much as from the API server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.crashes import ScenarioRunner, crash_parameters
from chaos.points import Point
from chaos.run import define
from chaos.scenarios import LATTICE, SCENARIOS, Scenario
from support.nodes.installers import INSTALLER_STAGES
from support.suite.forkserver import Forkserver, forkserver
from trellis_dev.localcluster import ClusterInfo, Lattices, owned_cluster

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    """A control plane with a wadm; hosts are simulated pods."""
    with owned_cluster(audit=True, kwok_stages=INSTALLER_STAGES, lattices=Lattices(hosts=0)) as info:
        yield info


@pytest.fixture(scope="module")
def crashing(cluster: ClusterInfo) -> Iterator[Forkserver]:
    """A forkserver whose processes die at a given point; made when the cluster is there, whose accounts they have."""
    define(cluster)
    with forkserver("chaos.crash_at_point") as made:
        yield made


async def test_the_scenario_of_a_lattice_comes_to_its_boundaries_and_to_no_others(
    cluster: ClusterInfo, crashing: Forkserver
) -> None:
    attempt = await ScenarioRunner(cluster, crashing, LATTICE).run()
    assert not attempt.wrong, "\n".join(attempt.wrong)
    assert {point.what for point in attempt.passed} - LATTICE.optional == set(LATTICE.boundaries)


async def test_services_of_a_lattice_that_die_at_every_boundary_end_in_the_same_place(
    cluster: ClusterInfo, crashing: Forkserver
) -> None:
    wrong = await ScenarioRunner(cluster, crashing, LATTICE).crash_at_all_points()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("scenario", "point"), crash_parameters(*SCENARIOS))
async def test_after_a_crash_at_a_boundary_the_successor_completes_the_work(
    cluster: ClusterInfo, crashing: Forkserver, scenario: Scenario, point: Point
) -> None:
    attempt = await ScenarioRunner(cluster, crashing, scenario).run(point)
    assert not attempt.wrong, "\n".join(attempt.wrong)
    assert not attempt.left or point.what in scenario.transient, f"{point} was not reached"
