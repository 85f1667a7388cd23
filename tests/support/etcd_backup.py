"""A backup of a control plane's etcd, and its restore: the whole cluster goes back to an earlier state.

Only for a control plane of a test's own: everything that others did since the backup is undone, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from trellis.localcluster import ClusterInfo, kill, restart
from trellis.localcluster.paths import Layout


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
        """Replace etcd's data by the copy; returns when the API server serves it."""
        kill(self._name, "kube-apiserver")
        kill(self._name, "etcd")
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        restart(self._name, "etcd")
        restart(self._name, "kube-apiserver")
