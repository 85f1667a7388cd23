"""The persistent state of a cluster: ``state.json`` in its directory.

In and out: one JSON document. Called by `up`, `down`, `status` and fault tests. Invariant: the file is replaced
atomically (temporary name, rename), only its owner can read it, and it lists every process before the wait for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field, ValidationError

from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import LOOPBACK
from trellis_dev.localcluster.processes import ProcessRecord, children

NETWORK: Final = "network"
"""The process that holds the network of the real nodes."""
LATTICE_NATS: Final = "lattice-nats"
"""The process through which pods on real nodes reach the NATS of the lattices."""
NODE_NAMES: Final = tuple(f"real-{index}" for index in range(8))
"""The possible names of real nodes; each has a token from the start."""


class RealNodeInfo(BaseModel, frozen=True):
    """A real node as seen from this machine. ``root``: the changes on its disk, as an overlay upper directory.

    ``pids``: ``init`` is PID 1 of the node; ``containerd``, ``kubelet`` and ``kube-proxy`` only if they run.
    """

    name: str
    root: Path
    address: str
    pids: dict[str, int]
    containerd_socket: Path


class LatticeHost(BaseModel, frozen=True):
    """A wasmCloud host: ``name`` of its process, ``id`` its public key (N…), new with each start.

    ``heartbeat`` is in seconds.
    """

    name: str
    lattice: str
    labels: dict[str, str] = Field(default_factory=dict)
    id: str = ""
    heartbeat: int = 30


class ClusterInfo(BaseModel, frozen=True):
    """Addresses of a cluster, as URLs on the loopback address; missing components are null.

    ``lattice_nats``: address of the lattices for pods on real nodes, the ``natsAddress`` of a host group.
    """

    name: str
    kubeconfig: Path
    nats_url: str
    jaeger_url: str | None
    otlp_endpoint: str | None
    bin_dir: Path
    pids: dict[str, int]
    audit_log: Path | None = None
    real_nodes: tuple[RealNodeInfo, ...] = ()
    lattices: tuple[str, ...] = ()
    lattice_hosts: tuple[LatticeHost, ...] = ()
    lattice_nats: str | None = None


class ClusterState(BaseModel):
    """The record of one cluster. ``starter`` is the process that is starting it, or owns it; None otherwise.

    ``range`` is set if it can have real nodes: they and the API server then use addresses in 10.<range>.0.0/16.
    """

    name: str
    token: str
    starter: ProcessRecord | None
    owned: bool = False
    complete: bool = False
    audit: bool = False
    quick_jobs: bool = True
    long_leases: bool = False
    address: str = LOOPBACK
    range: int | None = None
    containerd: str = "2"
    ports: dict[str, int] = Field(default_factory=dict)
    processes: dict[str, ProcessRecord] = Field(default_factory=dict)
    lattices: list[str] = Field(default_factory=list)
    hosts: dict[str, LatticeHost] = Field(default_factory=dict)


_SERVICES: Final = ("containerd", "kubelet", "kube-proxy")
_saving = threading.Lock()


def save(layout: Layout, state: ClusterState) -> None:
    """Write the state; safe for several threads of one process."""
    with _saving:
        temporary = layout.state.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(state.model_dump_json(indent=2))
        temporary.replace(layout.state)


def load(layout: Layout) -> ClusterState | None:
    """Return the state; None if it cannot be read (incomplete directory)."""
    try:
        return ClusterState.model_validate_json(layout.state.read_bytes())
    except (OSError, ValidationError):
        return None


def load_token(layout: Layout) -> str | None:
    """Return the token from a state of any version of this package, or None."""
    try:
        token = json.loads(layout.state.read_bytes())["token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return token if isinstance(token, str) else None


def describe_node(layout: Layout, state: ClusterState, name: str) -> RealNodeInfo:
    """Return a real node as seen from this machine; if it is not running, ``pids`` is empty and the socket missing."""
    inside = children(state.processes[name])
    pids = {"init": inside[0].pid} if inside else {}
    for record in children(state.processes[name], deep=True):
        with contextlib.suppress(OSError):
            program = Path(f"/proc/{record.pid}/comm").read_text(encoding="utf-8").strip()
            if program in _SERVICES:
                pids.setdefault(program, record.pid)
    return RealNodeInfo(
        name=name,
        root=layout.node(name) / "upper",
        address=f"10.{state.range}.0.{10 + NODE_NAMES.index(name)}",
        pids=pids,
        containerd_socket=Path(f"/proc/{pids.get('init', 0)}/root/run/containerd/containerd.sock"),
    )


def describe(layout: Layout, state: ClusterState) -> ClusterInfo:
    """Return the addresses of a complete cluster."""
    ports = state.ports
    jaeger = "jaeger" in state.processes
    return ClusterInfo(
        name=state.name,
        kubeconfig=layout.kubeconfig(),
        nats_url=f"nats://127.0.0.1:{ports['nats']}",
        jaeger_url=f"http://127.0.0.1:{ports['jaeger-query']}" if jaeger else None,
        otlp_endpoint=f"http://127.0.0.1:{ports['jaeger-otlp-http']}" if jaeger else None,
        bin_dir=layout.bin,
        pids={tool: record.pid for tool, record in state.processes.items()},
        audit_log=layout.audit_log if state.audit else None,
        real_nodes=tuple(describe_node(layout, state, name) for name in NODE_NAMES if name in state.processes),
        lattices=tuple(state.lattices),
        lattice_hosts=tuple(state.hosts.values()),
        lattice_nats=f"nats://{state.address}" if LATTICE_NATS in state.processes else None,
    )
