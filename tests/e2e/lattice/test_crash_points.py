"""Services die at each boundary between a message and its acknowledgement, one crash in each telling, and all in one.

Beside a real wadm, from which the services of a lattice receive as much as from the API server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.crashes import Teller, crossing
from chaos.points import Point
from chaos.run import define
from chaos.stories import LATTICE, STORIES, Story
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
def pointed(cluster: ClusterInfo) -> Iterator[Forkserver]:
    """A forkserver whose processes die at a given point; made when the cluster is there, whose accounts they have."""
    define(cluster)
    with forkserver("chaos.pointed") as made:
        yield made


async def test_the_story_of_a_lattice_comes_to_its_boundaries_and_to_no_others(
    cluster: ClusterInfo, pointed: Forkserver
) -> None:
    telling = await Teller(cluster, pointed, LATTICE).tell()
    assert not telling.wrong, "\n".join(telling.wrong)
    assert {point.what for point in telling.passed} - LATTICE.may == set(LATTICE.boundaries)


async def test_services_of_a_lattice_that_die_at_every_boundary_end_in_the_same_place(
    cluster: ClusterInfo, pointed: Forkserver
) -> None:
    wrong = await Teller(cluster, pointed, LATTICE).cross_all()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("story", "point"), crossing(*STORIES))
async def test_after_a_crash_at_a_boundary_the_successor_completes_the_work(
    cluster: ClusterInfo, pointed: Forkserver, story: Story, point: Point
) -> None:
    telling = await Teller(cluster, pointed, story).tell(point)
    assert not telling.wrong, "\n".join(telling.wrong)
    assert not telling.left or point.what in story.passes, f"nobody came to {point}"
