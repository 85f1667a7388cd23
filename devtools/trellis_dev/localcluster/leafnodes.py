"""Joins the NATS servers of two clusters, one as a leaf node of the other: lattices then span both.

In: names of running clusters. Out: their servers, restarted with a leaf node configuration. Called by tests of lattices
over several clusters. Invariant: clients, streams and buckets are kept; each server has a JetStream domain with the
name of its cluster; events on the bus of one cluster (``trellis.>``) do not reach that of the other, because both have
a stream for them.
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
    """Make the NATS servers of ``leaves`` leaf nodes of that of ``hub``; each is restarted on its port.

    The leaves connect and reconnect by themselves. Returns the leaf node port of the hub. ``through``: a local port
    that forwards to it; the leaves have no other address, so that a test can cut the connection.

    Raises:
        LocalClusterError: a cluster does not exist, or would be a leaf node of itself or of two.
        StartError: a server does not become ready.
    """
    names = list(leaves)
    if hub in names:
        raise LocalClusterError(f"cluster '{hub}' cannot be a leaf node of itself: name two clusters")
    port = _configure(hub, {})
    restart(hub, "nats-server", progress)
    for name in names:
        _configure(name, {LEAFNODES: port if through is None else through})
        restart(name, "nats-server", progress)
    return port


def _configure(name: str, hub: Mapping[str, int]) -> int:
    """Write the configuration of a hub, or of a leaf node of the given hub; return the port of the hub."""
    layout = Layout.of(name)
    _loaded(layout)  # before the lock, so that no lock file is created for a missing cluster
    with FileLock(layout.root / "lock"):
        state = _loaded(layout)
        port = hub.get(LEAFNODES) or state.ports.get(LEAFNODES) or free_ports(1)[0]
        text = leaf_config(name, port) if hub else hub_config(name, port)
        if layout.nats_config.exists() and layout.nats_config.read_text(encoding="utf-8") != text:
            raise LocalClusterError(f"the NATS server of cluster '{name}' is already joined: choose another cluster")
        layout.nats_config.write_text(text, encoding="utf-8")
        state.ports[LEAFNODES] = port
        save(layout, state)
    return port


def _loaded(layout: Layout) -> ClusterState:
    state = load(layout)
    if state is None:
        raise LocalClusterError(f"cluster '{layout.name}' does not exist: see `trellis dev status`")
    return state
