"""Joins the NATS servers of two clusters, one as a leaf node of the other: lattices then span both.

In: names of clusters that run. Out: their servers, started again with a configuration of their own. Called by tests of
lattices over several clusters. Invariant: clients, streams and buckets stay; each server has a JetStream domain called
like its cluster; and what is on the bus of one cluster (``trellis.>``) does not reach that of the other, because both
have a stream for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from filelock import FileLock

from trellis_dev.localcluster.cluster import restart
from trellis_dev.localcluster.commands import LEAFNODES
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.nats_configs import hub_config, leaf_config
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import free_ports
from trellis_dev.localcluster.progress import Progress
from trellis_dev.localcluster.state import ClusterState, load, save


def join(hub: str, leaves: Iterable[str], progress: Progress | None = None, *, through: int | None = None) -> int:
    """Make the NATS servers of some clusters leaf nodes of another's; each is started again, on its port.

    The leaves connect by themselves, and again after any outage. Returns the hub's port for leaf nodes. ``through``: a
    port of this machine that leads there; the leaves know no other, so that a test can cut what is behind it.

    Raises:
        LocalClusterError: if there is no such cluster, or one would be a leaf of itself or of two.
        StartError: if a server does not come back.
    """
    names = list(leaves)
    if hub in names:
        raise LocalClusterError(f"cluster '{hub}' cannot be a leaf of itself: name two clusters")
    port = _configure(hub, {})
    restart(hub, "nats-server", progress)
    for name in names:
        _configure(name, {LEAFNODES: port if through is None else through})
        restart(name, "nats-server", progress)
    return port


def _configure(name: str, hub: Mapping[str, int]) -> int:
    """Write the configuration of a hub, or of a leaf of the given one; return the hub's port."""
    layout = Layout.of(name)
    _loaded(layout)  # before a lock would be made where nothing is
    with FileLock(layout.root / "lock"):
        state = _loaded(layout)
        port = hub.get(LEAFNODES) or state.ports.get(LEAFNODES) or free_ports(1)[0]
        text = leaf_config(name, port) if hub else hub_config(name, port)
        if layout.nats_config.exists() and layout.nats_config.read_text(encoding="utf-8") != text:
            raise LocalClusterError(f"the NATS server of cluster '{name}' is joined to others already: take another")
        layout.nats_config.write_text(text, encoding="utf-8")
        state.ports[LEAFNODES] = port
        save(layout, state)
    return port


def _loaded(layout: Layout) -> ClusterState:
    state = load(layout)
    if state is None:
        raise LocalClusterError(f"there is no cluster '{layout.name}': see `trellis dev status`")
    return state
