"""What befalls a node, for tests: a reboot, a power cut, a cut cable; and a way in.

In: the names of a cluster and of one of its real nodes. Out: the node as it is after that. Called by tests. Invariant:
a node keeps its disk through all of this, and nothing else: its memory, mounts, addresses and processes are new.
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
from trellis_dev.localcluster.processes import alive
from trellis_dev.localcluster.progress import Quiet
from trellis_dev.localcluster.realnode import first_process, start_node, stop_node
from trellis_dev.localcluster.realnode_network import switch
from trellis_dev.localcluster.state import NETWORK, ClusterState, RealNodeInfo, describe_node, load


def power_off(name: str, node: str) -> None:
    """End a node at once, as a power cut does; returns when nothing of it runs.

    Raises:
        LocalClusterError: if there is no such node.
    """
    with _locked(name, node) as (_, state):
        stop_node(state, node)


def power_on(name: str, node: str) -> None:
    """Start a node that is off, with the disk it had; returns at once, the node becomes Ready by itself.

    Raises:
        LocalClusterError: if there is no such node.
    """
    with _locked(name, node) as (layout, state):
        if not alive(state.processes[node]):
            start_node(layout, state, node, How(Quiet(), threading.Event()))


def reboot(name: str, node: str) -> None:
    """Turn a node off and on; returns when it starts. It has a new boot id then.

    Raises:
        LocalClusterError: if there is no such node.
    """
    power_off(name, node)
    power_on(name, node)


def cut_off(name: str, node: str) -> None:
    """Pull a node's cable: nothing reaches it, and it reaches nothing; what runs on it goes on.

    Raises:
        LocalClusterError: if there is no such node, or it is off.
    """
    _switch(name, node, connected=False)


def heal(name: str, node: str) -> None:
    """Plug the cable in again.

    Raises:
        LocalClusterError: if there is no such node, or it is off.
    """
    _switch(name, node, connected=True)


def inspect(name: str, node: str) -> RealNodeInfo:
    """Return how this machine sees a node now.

    Raises:
        LocalClusterError: if there is no such node.
    """
    layout, state = _look(name, node)
    return describe_node(layout, state, node)


def run_in(name: str, node: str, argv: Sequence[str], stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program on a node, as its root in all its namespaces; return status, standard output and error as text.

    Raises:
        LocalClusterError: if there is no such node, or it is off.
    """
    _, state = _look(name, node)
    inside = first_process(state.processes[node])
    if inside is None:
        raise LocalClusterError(f"node {node} of cluster '{name}' is off")
    enter = ["nsenter", "--target", str(inside.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
    # The directory is asked for too: ours does not exist there.
    command = [*enter, "--root", "--wd", "--", *argv]
    with (stdin or Path("/dev/null")).open("rb") as given:
        return subprocess.run(  # noqa: S603 - the caller's words
            command, stdin=given, capture_output=True, text=True, errors="replace", check=False
        )


def load_image(name: str, node: str, archive: Path) -> None:
    """Give a node an image: an archive as ``docker save``, buildah or :mod:`.ociarchive` write it.

    Raises:
        LocalClusterError: if there is no such node, it is off, or its containerd refuses the archive.
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
        raise LocalClusterError(f"there is no cluster '{name}': see `trellis dev status`")
    if state.range is None or node not in state.processes:
        raise LocalClusterError(f"cluster '{name}' has no real node '{node}'")
    return layout, state
