"""Faults of real nodes for tests: reboot, power failure, network failure; and access to the node.

In: the names of a cluster and of one of its real nodes. Out: the node in its new state. Called by tests. Invariant:
only the disk of a node survives; its memory, mounts, addresses and processes are new.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.processes import ProcessRecord, alive
from trellis_dev.localcluster.progress import Quiet
from trellis_dev.localcluster.realnode import first_process, start_node, stop_node
from trellis_dev.localcluster.realnode_network import switch
from trellis_dev.localcluster.state import NETWORK, ClusterState, RealNodeInfo, describe_node, load


def power_off(name: str, node: str) -> None:
    """End a node at once, like a power failure; return when all its processes have ended.

    Raises:
        LocalClusterError: the node does not exist.
    """
    with _locked(name, node) as (_, state):
        stop_node(state, node)


def power_on(name: str, node: str) -> None:
    """Start a stopped node with its existing disk, without waiting for Ready.

    Raises:
        LocalClusterError: the node does not exist.
    """
    with _locked(name, node) as (layout, state):
        if not alive(state.processes[node]):
            start_node(layout, state, node, How(Quiet(), threading.Event()))


def reboot(name: str, node: str) -> None:
    """Stop and start a node; return when it starts, with a new boot id.

    Raises:
        LocalClusterError: the node does not exist.
    """
    power_off(name, node)
    power_on(name, node)


def cut_off(name: str, node: str) -> None:
    """Disconnect the network of a node in both directions; its processes keep running.

    Raises:
        LocalClusterError: the node does not exist or is stopped.
    """
    _switch(name, node, connected=False)


def heal(name: str, node: str) -> None:
    """Reconnect the network of a node.

    Raises:
        LocalClusterError: the node does not exist or is stopped.
    """
    _switch(name, node, connected=True)


def inspect(name: str, node: str) -> RealNodeInfo:
    """Return the current state of a node as seen from this machine.

    Raises:
        LocalClusterError: the node does not exist.
    """
    layout, state = _look(name, node)
    return describe_node(layout, state, node)


def run_in(name: str, node: str, argv: Sequence[str], stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program as root in all namespaces of a node; return status, standard output and error as text.

    Raises:
        LocalClusterError: the node does not exist or is stopped.
    """
    _, state = _look(name, node)
    inside = first_process(state.processes[node])
    if inside is None:
        raise LocalClusterError(f"node {node} of cluster '{name}' is stopped")
    return run_inside(inside, argv, stdin)


def run_inside(
    inside: ProcessRecord, argv: Sequence[str], stdin: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Do the same for a node by its PID 1, as :func:`~trellis_dev.localcluster.realnode.first_process` returns it."""
    enter = ["nsenter", "--target", str(inside.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
    # Set the working directory too: that of this process does not exist on the node.
    command = [*enter, "--root", "--wd", "--", *argv]
    with (stdin or Path("/dev/null")).open("rb") as given:
        return subprocess.run(  # noqa: S603 - arguments of the caller
            command, stdin=given, capture_output=True, text=True, errors="replace", check=False
        )


def load_image(name: str, node: str, archive: Path) -> None:
    """Load an image on a node: an archive in the format of ``docker save``, buildah or :mod:`.ociarchive`.

    Raises:
        LocalClusterError: the node does not exist or is stopped, or its containerd rejects the archive.
    """
    answer = run_in(name, node, ["ctr", "--namespace", "k8s.io", "images", "import", "-"], archive)
    if answer.returncode != 0:
        raise LocalClusterError(f"{archive} could not be loaded on node {node}: {answer.stderr.strip()}")


def _switch(name: str, node: str, *, connected: bool) -> None:
    with _locked(name, node) as (_, state):
        index = int(node.rpartition("-")[2])
        switch(state.processes[NETWORK], index, connected=connected)


@contextmanager
def _locked(name: str, node: str) -> Iterator[tuple[Layout, ClusterState]]:
    layout, _ = _look(name, node)
    with FileLock(layout.root / "lock"):
        yield _look(name, node)


def _look(name: str, node: str) -> tuple[Layout, ClusterState]:
    layout = Layout.of(name)
    state = load(layout)
    if state is None:
        raise LocalClusterError(f"cluster '{name}' does not exist: see `trellis dev status`")
    if state.range is None or node not in state.processes:
        raise LocalClusterError(f"cluster '{name}' has no real node '{node}'")
    return layout, state
