"""Paths of caches and clusters on this machine.

In: the XDG variables of the environment. Out: absolute paths; nothing is created here.
Called by every module of this package. Invariant: everything of one cluster is below :attr:`Layout.root`, so that
removing that directory removes the complete state of the cluster.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.errors import LocalClusterError

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _xdg(variable: str, default: str) -> Path:
    """Return an XDG base directory; a relative value is ignored, as in the XDG specification."""
    value = Path(os.environ.get(variable, ""))
    return value if value.is_absolute() else Path.home() / default


def cache_root() -> Path:
    """Return the directory of built tools: ``${XDG_CACHE_HOME:-~/.cache}/trellis``."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "trellis"


def clusters_root() -> Path:
    """Return the directory with one state directory per cluster."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "trellis" / "clusters"


def check_name(name: str) -> str:
    """Return the name if it is a valid cluster name (a DNS label), else raise LocalClusterError."""
    if _NAME.fullmatch(name) is None:
        raise LocalClusterError(
            f"'{name}' is not a valid cluster name: use 1 to 63 of a-z, 0-9 and '-', not '-' at either end"
        )
    return name


@dataclass(frozen=True)
class Layout:
    """The files of one cluster."""

    root: Path

    @classmethod
    def of(cls, name: str) -> Layout:
        """Return the layout of the named cluster. Raise LocalClusterError if the name is invalid."""
        return cls(clusters_root() / check_name(name))

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.root.name

    @property
    def state(self) -> Path:
        """The record of processes, ports and options."""
        return self.root / "state.json"

    @property
    def pki(self) -> Path:
        """Certificates, keys and tokens."""
        return self.root / "pki"

    @property
    def data(self) -> Path:
        """Data directories of etcd and nats-server."""
        return self.root / "data"

    @property
    def logs(self) -> Path:
        """Directory of the log files, one per component."""
        return self.root / "logs"

    @property
    def bin(self) -> Path:
        """Directory of symbolic links to the programs of this cluster, and kubectl."""
        return self.root / "bin"

    @property
    def nats_config(self) -> Path:
        """Configuration of nats-server; exists only if it is joined to another server."""
        return self.root / "nats.conf"

    @property
    def stages(self) -> Path:
        """Stages of kwok, one file of YAML documents."""
        return self.root / "kwok-stages.yaml"

    @property
    def audit_log(self) -> Path:
        """Log of every write to the API server (JSON lines), if enabled."""
        return self.logs / "audit.jsonl"

    def node(self, name: str) -> Path:
        """Return the directory of one real node: the changes on its root (``upper``) and its second disk (``disk``)."""
        return self.root / "nodes" / name

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return the kubeconfig of one user; that of the administrator is at the top level."""
        return self.root / "kubeconfig" if user == "admin" else self.pki / f"{user}.kubeconfig"

    def log(self, tool: str) -> Path:
        """Return the log file of one component."""
        return self.logs / f"{tool}.log"
