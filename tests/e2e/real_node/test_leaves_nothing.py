"""A cluster with real nodes leaves nothing at any end: no process, mount, namespace, interface, control group."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.nodes.real_nodes import Kubectl, eventually, fingerprint, interfaces, namespaces, remains
from trellis_dev.localcluster import down, realnode, registry, status, up
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import inspect
from trellis_dev.localcluster.state import ClusterState, load, load_token

COMMAND = [sys.executable, "-m", "trellis_cli", "dev"]
UP = [*COMMAND, "up", "--name", "real-abandoned", "--real-node", "-o", "json"]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    realnode.prepare(How(Lines(), threading.Event()))  # what follows has no time to build
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield
    for name in registry.names():
        down(name)


def descendants(state: ClusterState) -> list[int]:
    """Return every process of the cluster, those inside the nodes too."""
    found = []
    for record in state.processes.values():
        try:
            process = psutil.Process(record.pid)
            found += [process.pid, *(child.pid for child in process.children(recursive=True))]
        except psutil.NoSuchProcess:
            continue
    return found


def test_down_leaves_nothing(machine: dict[str, str]) -> None:
    before = interfaces()
    output = subprocess.run(UP, capture_output=True, text=True, check=True, timeout=300).stdout
    info = json.loads(output)
    (node,) = info["real_nodes"]
    assert set(node) == {"name", "root", "address", "pids", "containerd_socket"}
    layout = Layout.of("real-abandoned")
    state = load(layout)
    assert state is not None
    pids = descendants(state)
    former = namespaces(pids)
    assert len(former) >= 7  # six of the node, one of its bridge
    assert interfaces() - before == {f"trellis{state.range}"}
    assert remains(state.token, layout.root, former) != []

    subprocess.run([*COMMAND, "down", "--name", "real-abandoned"], check=True, timeout=120, capture_output=True)

    # The kernel takes a namespace apart a moment after its last process.
    eventually(lambda: remains(state.token, layout.root, former) == [], "nothing is left", 20)
    eventually(lambda: not any(map(psutil.pid_exists, pids)), "no process is left", 20)
    assert f"trellis{state.range}" not in interfaces()
    assert fingerprint("/etc", "/opt") == machine


@pytest.mark.parametrize("stage", ["network", "kube-apiserver", "real-0", "containerd", "kubelet"])
@pytest.mark.parametrize("supervisor_too", [False, True], ids=["up", "up-and-supervisor"])
def test_a_killed_up_leaves_nothing(stage: str, supervisor_too: bool) -> None:
    process = subprocess.Popen(UP, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    layout = Layout.of("real-abandoned")

    def reached() -> bool:
        assert process.poll() is None, "it ended by itself"
        state = load(layout)
        if state is None:
            return False
        if stage in {"containerd", "kubelet"}:
            return "real-0" in state.processes and stage in inspect("real-abandoned", "real-0").pids
        return stage in state.processes

    eventually(reached, f"`up` has started {stage}")
    state = load(layout)
    token = load_token(layout)
    assert state is not None
    assert token is not None
    former = namespaces(descendants(state))
    if supervisor_too:
        [child] = [c for c in psutil.Process(process.pid).children() if "supervisor.py" in " ".join(c.cmdline())]
        child.kill()
    process.send_signal(signal.SIGKILL)
    process.wait()
    if supervisor_too:
        assert remains(token, layout.root, former) != []
        assert status() == []
    eventually(lambda: remains(token, layout.root, former) == [], f"gone: {remains(token, layout.root, former)}", 60)


def test_two_clusters_have_nodes_of_the_same_name_and_do_not_meet() -> None:
    first, second = (up(name, real_nodes=1) for name in ("real-a", "real-b"))
    assert first.real_nodes[0].address != second.real_nodes[0].address
    assert first.real_nodes[0].root != second.real_nodes[0].root
    assert down("real-a")
    (left,) = status()
    assert left.name == "real-b"
    assert set(left.real_nodes[0].pids) == {"init", "containerd", "kubelet", "kube-proxy"}


def test_up_restarts_ended_components_and_adds_a_node() -> None:
    info = up("real-mended", real_nodes=1)
    boot = Kubectl(info).get("node", "real-0")["status"]["nodeInfo"]["bootID"]
    psutil.Process(info.pids["network"]).kill()
    eventually(lambda: "network" not in status("real-mended")[0].pids, "the network is gone")
    again = up("real-mended", real_nodes=2)
    # The API server has said Ready all along: `up` waits for the node that runs now.
    assert Kubectl(again).get("node", "real-0")["status"]["nodeInfo"]["bootID"] != boot
    assert [node.name for node in again.real_nodes] == ["real-0", "real-1"]
    assert again.real_nodes[0].address == info.real_nodes[0].address


def test_a_lock_that_up_was_started_under_is_free_again(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    subprocess.run(["flock", str(lock), *UP], capture_output=True, check=True, timeout=300)
    taken = subprocess.run(["flock", "--nonblock", str(lock), "true"], check=False)
    assert taken.returncode == 0
