"""A backup of a control plane's etcd, and its restore: the whole cluster goes back to an earlier state.

Only for a control plane of a test's own: everything that others did since the backup is undone, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from trellis_dev.localcluster import ClusterInfo, kill, restart
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.paths import Layout


class EtcdBackup:
    """A copy of etcd's data directory, taken while etcd is stopped."""

    def __init__(self, cluster: ClusterInfo, folder: Path) -> None:
        self._name = cluster.name
        self._data = Layout.of(cluster.name).root / "data" / "etcd"
        self._copy = folder / "etcd"

    def take(self) -> None:
        """Copy what etcd has; the API server loses it for a moment."""
        kill(self._name, "etcd")
        shutil.copytree(self._data, self._copy)
        restart(self._name, "etcd")

    def restore(self) -> None:
        """Replace etcd's data by the copy; returns when the API server serves it, and its clients were restarted.

        Source: Kubernetes' page on operating etcd has controllers, schedulers and kubelets restarted after a restore.
        Otherwise they wait: their watches begin at a resourceVersion that the restored server does not have yet.
        """
        for tool in ("kwok", "kube-apiserver", "etcd"):
            kill(self._name, tool)
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        for tool in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            restart(self._name, tool)
        self._end_node_leases()
        restart(self._name, "kwok")

    def _end_node_leases(self) -> None:
        """Delete the nodes' Leases: each kwok waits until those of the former one have run out, unlike a kubelet."""
        api = Api.of_kubeconfig(Layout.of(self._name).kubeconfig())
        try:
            api.call("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        finally:
            api.close()
