"""A real control plane on this machine, from nothing but package registries: NATS, etcd, Kubernetes, kwok,
Jaeger, wadm and wasmCloud hosts.

Behind `trellis dev`, the demo, benchmarks and integration tests. Needs the extra ``local``. Entry points:
:func:`up`, :func:`down`, :func:`status`, :func:`local_cluster`, and :func:`restart`, :func:`kill` for faults;
:func:`trellis.localcluster.tools.ensure`; :class:`trellis.localcluster.otlp.OtlpReceiver`;
:class:`trellis.localcluster.nats.NatsServer`. Invariant: nothing here imports a Kubernetes client or FastStream.
"""

from __future__ import annotations

from trellis.localcluster.cluster import down, kill, restart, status, up
from trellis.localcluster.errors import LocalClusterError
from trellis.localcluster.lattices import Lattices
from trellis.localcluster.owned import local_cluster, owned_cluster
from trellis.localcluster.state import ClusterInfo

__all__ = [
    "ClusterInfo",
    "Lattices",
    "LocalClusterError",
    "down",
    "kill",
    "local_cluster",
    "owned_cluster",
    "restart",
    "status",
    "up",
]
