"""Services die at each boundary between a message and its acknowledgement; their successors end in the same place.

With a real API server and a real NATS, and processes that are killed: all boundaries of a story in one telling of it.
tests/e2e/lattice/test_crash_points.py has one crash in each, and the services of a lattice beside a real wadm.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.crashes import Teller
from chaos.run import define
from chaos.stories import CONTROLLERS, NODES, Story
from support.suite.forkserver import Forkserver, forkserver
from trellis.crds.kinds import KINDS
from trellis_dev.localcluster import ClusterInfo

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def pointed(cluster: ClusterInfo) -> Iterator[Forkserver]:
    """A forkserver whose processes die at a given point; made when the cluster is there, whose accounts they have."""
    define(cluster, [kind for kind in KINDS if kind.plural in {"shims", "wasmcontrollers"}])
    with forkserver("chaos.pointed") as made:
        yield made


@pytest.mark.parametrize("story", [NODES, CONTROLLERS], ids=lambda story: story.part)
@pytest.mark.thorough
async def test_a_story_comes_to_its_boundaries_and_to_no_others(
    cluster: ClusterInfo, pointed: Forkserver, story: Story
) -> None:
    telling = await Teller(cluster, pointed, story).tell()
    assert not telling.wrong, "\n".join(telling.wrong)
    assert {point.what for point in telling.passed} - story.may == set(story.boundaries)


@pytest.mark.parametrize("story", [NODES, CONTROLLERS], ids=lambda story: story.part)
@pytest.mark.thorough
async def test_services_that_die_at_every_boundary_end_in_the_same_place(
    cluster: ClusterInfo, pointed: Forkserver, story: Story
) -> None:
    wrong = await Teller(cluster, pointed, story).cross_all()
    assert not wrong, "\n".join(wrong)
