"""Services die at each boundary between a message and its acknowledgement; their successors end in the same place.

With a real API server and a real NATS, and processes that are killed: all boundaries of a scenario in one run.
tests/e2e/lattice/test_crash_points.py has one crash in each, and the services of a lattice beside a real wadm.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.crashes import ScenarioRunner
from chaos.run import define
from chaos.scenarios import CONTROLLERS, NODES, Scenario
from support.suite.forkserver import Forkserver, forkserver
from trellis.crds.kinds import KINDS
from trellis_dev.localcluster import ClusterInfo

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def crashing(cluster: ClusterInfo) -> Iterator[Forkserver]:
    """A forkserver whose processes die at a given point; made when the cluster is there, whose accounts they have."""
    define(cluster, [kind for kind in KINDS if kind.plural in {"shims", "wasmcontrollers"}])
    with forkserver("chaos.crash_at_point") as made:
        yield made


@pytest.mark.parametrize("scenario", [NODES, CONTROLLERS], ids=lambda scenario: scenario.part)
@pytest.mark.thorough
async def test_a_scenario_comes_to_its_boundaries_and_to_no_others(
    cluster: ClusterInfo, crashing: Forkserver, scenario: Scenario
) -> None:
    attempt = await ScenarioRunner(cluster, crashing, scenario).run()
    assert not attempt.wrong, "\n".join(attempt.wrong)
    assert {point.what for point in attempt.passed} - scenario.optional == set(scenario.boundaries)


@pytest.mark.parametrize("scenario", [NODES, CONTROLLERS], ids=lambda scenario: scenario.part)
@pytest.mark.thorough
async def test_services_that_die_at_every_boundary_end_in_the_same_place(
    cluster: ClusterInfo, crashing: Forkserver, scenario: Scenario
) -> None:
    wrong = await ScenarioRunner(cluster, crashing, scenario).crash_at_all_points()
    assert not wrong, "\n".join(wrong)
