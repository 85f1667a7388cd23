"""Temporary clusters for tests, the demo and benchmarks, limited to a block.

In: options as for `up`. Out: the addresses of the cluster, while the block runs. Invariant: the cluster is removed at
the end of the block, also after an error, and when the owning process dies, even by SIGKILL.
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
    """Yield a cluster for the duration of a block, with a unique name by default.

    Cancellation during the start stops the start and removes the cluster. Raises the errors of `up`, and
    LocalClusterError if a cluster of that name exists. ``quick_jobs`` False keeps the default client limits of the
    controller manager: 1,000 Jobs then need four minutes. ``long_leases``: simulated nodes renew their leases every
    five minutes; renewals every ten seconds of thousands of nodes would saturate the API server.
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
    """Do the same as :func:`local_cluster` without an event loop, as in a pytest fixture."""
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
    assert watcher is not None, "an owned cluster is always new"
    discard(layout, state, watcher)
