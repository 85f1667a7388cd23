"""Five runs of chaos with seeds made of today's date, by the same code as `make chaos`: each day breaks something else.
And one by a seed that found a fault once.

In a control plane of their own, as runs restart theirs. Without the part of lattices, which takes a wadm
(``chaos/day.py``). A run whose machine gave the replicas no processor has seen nothing and is skipped by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pytest

from chaos import day, run
from chaos.day import SERVERS, command_of, found_on, schedule_of, seeds_of
from support.nodes.installers import INSTALLER_STAGES
from support.suite.forkserver import Forkserver
from trellis_dev.localcluster import ClusterInfo, owned_cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    # A run takes half a minute. On a machine that has no processor for it, its waits end after ten minutes each.
    pytest.mark.timeout(3000),
]
_LAST_LINES: Final = 40


class ControlPlane:
    """The control plane of these runs; another one after a run that was not good, which may have left something."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        self._cluster: ClusterInfo | None = None

    def have(self) -> ClusterInfo:
        """Return it, started if there is none."""
        if self._cluster is None:
            self._cluster = self._held.enter_context(owned_cluster(audit=True, kwok_stages=INSTALLER_STAGES))
            run.define(self._cluster)
        return self._cluster

    def end(self) -> None:
        """End it."""
        self._cluster = None
        self._held.close()


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane, started when a run wants it."""
    made = ControlPlane()
    yield made
    made.end()


@pytest.fixture(scope="module")
def made_by() -> Iterator[Forkserver]:
    """Provide the forkserver that starts replicas."""
    with run.replica_forkserver() as made:
        yield made


@pytest.fixture(scope="module")
def seeds() -> tuple[int, ...]:
    """The seeds of this day; of one, though midnight may pass."""
    today = day.day_of(os.environ, datetime.now(UTC).date())
    return *seeds_of(today), found_on(today)


# By lane and not by seed: what a test is called must not change between two processes that collect it.
OF_EACH_DAY: Final = 1
"""So many run in `make test`: with one server of NATS. The others have three, or found a fault once."""
LANES: Final = (*(f"lane-{number}-with-{servers}-nats" for number, servers in enumerate(SERVERS)), "found-once")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "lane",
    [pytest.param(lane, marks=pytest.mark.thorough if lane >= OF_EACH_DAY else ()) for lane in range(len(LANES))],
    ids=LANES,
)
async def test_faults_of_the_seed_are_repaired(
    control_plane: ControlPlane, made_by: Forkserver, seeds: tuple[int, ...], lane: int
) -> None:
    seed = seeds[lane]
    cluster = await asyncio.to_thread(control_plane.have)
    done = await run.carry_out(cluster, made_by, schedule_of(seed))
    text = run.summary(done, command_of(seed))
    if done.outcome.good:
        return
    await asyncio.to_thread(control_plane.end)
    lines = (done.directory / "progress").read_text(encoding="utf-8").splitlines()[-_LAST_LINES:]
    assert not done.outcome.wrong, "\n".join([text, run.shown(schedule_of(seed)), "the end of what was said:", *lines])
    pytest.skip(f"the machine gave it no processor: {text}")
