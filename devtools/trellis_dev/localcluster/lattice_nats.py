"""The NATS of lattices for pods on real nodes: a separate server on the network of the nodes.

In: a cluster that can have real nodes. Out: a process ``lattice-nats`` at the address of this machine on their network,
with the default NATS ports, so that a host group needs only ``natsAddress``. Called by `up`.

  pod: host ── its leaf ──► lattice-nats (10.<N>.0.1:7422) ──► nats-server (127.0.0.1): wadm, other hosts, clients

Invariant: the bus stays on the loopback address. Events (``trellis.>``) and JetStream, which could delete them, cross
in neither direction; other networks of this machine cannot reach the server.
"""

from __future__ import annotations

from typing import Final

from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.commands import LEAFNODES
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.nats_configs import CLIENT_PORT, hub_config, lattice_config
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import free_ports
from trellis_dev.localcluster.processes import alive, end, spawn
from trellis_dev.localcluster.progress import stepping
from trellis_dev.localcluster.readiness import nats_answers, wait_ready
from trellis_dev.localcluster.start import Starter
from trellis_dev.localcluster.state import LATTICE_NATS, ClusterState, save

_READY_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0


def ensure_lattice_nats(layout: Layout, state: ClusterState, how: How, *, wanted: bool) -> None:
    """Start the server if it is ``wanted`` or ran before.

    Raises:
        LocalClusterError: the NATS of the cluster is a leaf node of another.
        StartError: the server does not become ready.
    """
    if not wanted and LATTICE_NATS not in state.processes:
        return
    _ensure_hub(layout, state, how)
    record = state.processes.get(LATTICE_NATS)
    if record is None or not alive(record):
        start_lattice_nats(layout, state, how)


def start_lattice_nats(layout: Layout, state: ClusterState, how: How) -> None:
    """Start the server, which must not be running.

    Raises:
        StartError: it ended, or does not respond within 30 s; with the end of its log.
    """
    config = layout.root / f"{LATTICE_NATS}.conf"
    config.write_text(lattice_config(layout.name, state.address, state.ports[LEAFNODES]), encoding="utf-8")
    log = layout.log(LATTICE_NATS)
    position = log.stat().st_size if log.exists() else 0
    with stepping(how.progress, f"start {LATTICE_NATS}"):
        process = spawn([str(layout.bin / "nats-server"), "--config", str(config)], log=log, token=state.token)
        state.processes[LATTICE_NATS] = process
        save(layout, state)
        answers = lambda: nats_answers(CLIENT_PORT, state.address)  # noqa: E731 - a check with arguments
        wait_ready(LATTICE_NATS, answers, process, (log, position), _READY_SECONDS, how.abort)


def _ensure_hub(layout: Layout, state: ClusterState, how: How) -> None:
    """Configure the server of the cluster to accept leaf nodes; this restarts it once."""
    port = state.ports.get(LEAFNODES) or free_ports(1)[0]
    text = hub_config(layout.name, port)
    former = layout.nats_config.read_text(encoding="utf-8") if layout.nats_config.exists() else None
    if former == text:
        return
    if former is not None:
        raise LocalClusterError(f"the NATS server of cluster '{layout.name}' is a leaf node already: choose another")
    layout.nats_config.write_text(text, encoding="utf-8")
    state.ports[LEAFNODES] = port
    save(layout, state)
    end([state.processes["nats-server"]], grace=_STOP_SECONDS)
    Starter(layout, state, how.progress, how.abort).restart("nats-server")
