"""Clusters for the time of a block: what tests, the demo and benchmarks use.

In: options as for `up`. Out: how to reach the cluster, while the block runs. Invariant: the cluster is gone when the
block has ended, however it ended, and when the process that owns it dies, by SIGKILL too.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence

from trellis_dev.localcluster.cluster import Wanted, bring_up
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.guard import Guard
from trellis_dev.localcluster.lattices import Lattices
from trellis_dev.localcluster.paths import Layout, check_name
from trellis_dev.localcluster.progress import Progress, Quiet
from trellis_dev.localcluster.registry import discard, unique_name
from trellis_dev.localcluster.state import ClusterInfo, ClusterState, describe


@contextlib.asynccontextmanager
async def local_cluster(  # noqa: PLR0913 (keywords, all with defaults)
    name: str | None = None,
    *,
    nodes: int = 0,
    jaeger: bool = False,
    audit: bool = False,
    kwok_stages: Sequence[str] = (),
    quick_jobs: bool = True,
    long_leases: bool = False,
    real_nodes: int = 0,
    containerd: str = "2",
    lattices: Lattices | None = None,
    lattice_nats: bool = False,
    progress: Progress | None = None,
) -> AsyncIterator[ClusterInfo]:
    """Have a cluster for the time of a block, under a name of its own unless one is given.

    Cancelling while it starts ends the start and removes what there is before the cancellation goes on. Errors as of
    `up`, and LocalClusterError if a cluster of that name exists. ``quick_jobs`` False leaves the controller manager the
    client limits it has in any cluster: 1,000 Jobs then take it four minutes. ``long_leases``: simulated nodes give a
    sign of life every five minutes, as thousands that did so every ten seconds would leave the API server no time.
    """
    wanted = Wanted(
        check_name(name or unique_name()),
        nodes,
        jaeger,
        audit,
        tuple(kwok_stages),
        owned=True,
        quick_jobs=quick_jobs,
        long_leases=long_leases,
        real_nodes=real_nodes,
        containerd=containerd,
        lattices=lattices,
        lattice_nats=lattice_nats,
    )
    abort = threading.Event()
    starting = asyncio.create_task(asyncio.to_thread(bring_up, wanted, progress or Quiet(), abort))
    try:
        layout, state, watcher = await asyncio.shield(starting)
    except asyncio.CancelledError:
        abort.set()
        with contextlib.suppress(LocalClusterError):
            await asyncio.to_thread(_discard, *await starting)
        raise
    try:
        yield describe(layout, state)
    finally:
        await asyncio.shield(asyncio.to_thread(_discard, layout, state, watcher))


@contextlib.contextmanager
def owned_cluster(  # noqa: PLR0913 (keywords, all with defaults)
    *,
    nodes: int = 0,
    jaeger: bool = False,
    audit: bool = False,
    kwok_stages: Sequence[str] = (),
    real_nodes: int = 0,
    containerd: str = "2",
    lattices: Lattices | None = None,
    lattice_nats: bool = False,
) -> Iterator[ClusterInfo]:
    """Do the same as :func:`local_cluster` where no event loop runs, as in a pytest fixture."""
    wanted = Wanted(
        unique_name(),
        nodes,
        jaeger,
        audit,
        tuple(kwok_stages),
        owned=True,
        real_nodes=real_nodes,
        containerd=containerd,
        lattices=lattices,
        lattice_nats=lattice_nats,
    )
    layout, state, watcher = bring_up(wanted, Quiet(), threading.Event())
    try:
        yield describe(layout, state)
    finally:
        _discard(layout, state, watcher)


def _discard(layout: Layout, state: ClusterState, watcher: Guard | None) -> None:
    assert watcher is not None, "an owned cluster is always a new one"
    discard(layout, state, watcher)
