"""Real nodes of a local cluster: kubelet, containerd and kube-proxy in namespaces with a separate root.

In: the number. Out: Nodes ``real-0`` and up, Ready, with network and DNS between their pods. Called by `up`, and by
:mod:`.realnode_faults` for fault tests. A node is a process (enter.sh, then PID 1 of the node below it) whose
namespaces contain everything of the node; ADR 19 has the reasons.
Invariant: killing the processes with the token of the cluster removes a node completely; `down` needs nothing else.
"""

from __future__ import annotations

import shlex
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any, Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.cgroups import make_groups
from trellis_dev.localcluster.coredns import NAMESPACE, coredns_objects
from trellis_dev.localcluster.errors import AbortedError, LocalClusterError, StartError
from trellis_dev.localcluster.node_images import coredns_image, node_images
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.processes import ProcessRecord, alive, children, end, spawn
from trellis_dev.localcluster.progress import stepping
from trellis_dev.localcluster.readiness import tail
from trellis_dev.localcluster.realnode_network import Addresses, start_network
from trellis_dev.localcluster.realnode_root import CONTAINERD_2, write_lower, write_upper
from trellis_dev.localcluster.state import NETWORK, NODE_NAMES, ClusterState, save
from trellis_dev.localcluster.tools import REAL_NODE, cached, ensure_all

_READY_SECONDS: Final = 180.0
_POLL: Final = 0.1
_SELECTOR: Final = "trellis.local/real-node%3Dtrue"
_DISKS: Final = ("lib/containerd", "lib/kubelet", "lib/cni", "log")


def prepare(how: How) -> None:
    """Provide all parts of a real node in the cache.

    Raises:
        ToolError: a part is missing and cannot be built. AbortedError: stop was requested.
    """
    ensure_all(REAL_NODE, how.progress, how.abort)
    node_images(cached("coredns"), how)


def ensure_network(layout: Layout, state: ClusterState) -> None:
    """Start the network if it is not running; the first start chooses the addresses of the cluster.

    Raises:
        StartError: the network cannot be created on this machine.
    """
    record = state.processes.get(NETWORK)
    if record is not None and alive(record):
        return
    for name in NODE_NAMES:  # their veths ended with it
        if name in state.processes and alive(state.processes[name]):
            stop_node(state, name)
    state.processes[NETWORK], addresses = start_network(state.token, layout.log(NETWORK), state.range)
    state.range, state.address = addresses.number, addresses.machine
    save(layout, state)


def ensure_real_nodes(layout: Layout, state: ClusterState, count: int, how: How) -> None:
    """Start the first ``count`` real nodes, and those that ran before; wait until all are Ready and DNS responds.

    Raises:
        StartError: a node is not Ready in time; with the end of its log.
    """
    known = [name for name in NODE_NAMES if name in state.processes or NODE_NAMES.index(name) < count]
    if not known:
        return
    lower = layout.root / "node-root"
    with stepping(how.progress, f"start {', '.join(known)}"):
        if not lower.exists():
            _write_lower(lower, layout, state, how)
        for name in known:
            if name not in state.processes or not alive(state.processes[name]):
                start_node(layout, state, name, how)
    api = Api.of_pki(state.ports["kube-apiserver"], layout.pki, state.address)
    try:
        _wait(api, layout, state, known, how)
    finally:
        api.close()


def start_node(layout: Layout, state: ClusterState, name: str, how: How) -> None:
    """Start one stopped node with its existing disk, without waiting for Ready.

    Raises:
        StartError: its control groups cannot be created.
    """
    index = NODE_NAMES.index(name)
    assert state.range is not None
    node = layout.node(name)
    if not node.exists():
        _write_disk(node, layout, state, name)
    network = {**Addresses(state.range).settings(index), "INDEX": str(index)}
    lower = f"{layout.root / 'node-root'}:{debian.tree('node', how)}"
    start = Start(node, lower, network, state.processes[NETWORK], state.token)
    state.processes[name] = start_process(start, layout.log(name))
    save(layout, state)


@dataclass(frozen=True)
class Start:
    """A node to start. ``folder``: its name is that of the node; ``lower``: lower directories of its root.

    ``network``: settings of enter.sh for addresses and routes; ``hub``: a process in the namespace of the bridge.
    """

    folder: Path
    lower: str
    network: Mapping[str, str]
    hub: ProcessRecord
    token: str


def make_disk(folder: Path) -> None:
    """Create the directories of a node that is not started yet."""
    for part in ("work", "root", *(f"disk/{disk}" for disk in _DISKS)):
        (folder / part).mkdir(parents=True)


def start_process(start: Start, log: Path) -> ProcessRecord:
    """Start the process of a node in namespaces of its own; its child is PID 1 there.

    Raises:
        StartError: its control groups cannot be created, or the path of its root is not supported.
    """
    groups = make_groups(start.token, start.folder.name)
    settings = {
        **start.network,
        "NAME": start.folder.name,
        "LOWER": start.lower,
        "GROUPS_JOINED": " ".join(map(str, groups.directories)),
        "HIERARCHIES": " ".join(groups.hierarchies),
        "UNIFIED": "yes" if groups.unified else "no",
    }
    if any(sign in settings["LOWER"].replace(":", "", 1) for sign in ":,\\"):
        raise StartError(f"{settings['LOWER']}: overlay mounts do not support paths with ':', ',' or '\\'")
    lines = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
    (start.folder / "settings").write_text("\n".join([*lines, ""]), encoding="utf-8")
    script = resources.files("trellis_dev.localcluster").joinpath("node", "enter.sh")
    argv = ["/bin/sh", str(script), "groups", str(start.folder), str(start.hub.pid)]
    return spawn(argv, log=log, token=start.token)


def stop_node(state: ClusterState, name: str) -> None:
    """End a node like a power failure; return when all its processes have ended."""
    record = state.processes[name]
    inside = first_process(record)
    # PID 1 disappears only after the kernel has ended all processes in its namespace.
    end([inside, record] if inside is not None else [record], grace=0)


def first_process(record: ProcessRecord) -> ProcessRecord | None:
    """Return PID 1 of a node, as a process of this machine; None while the node is not running."""
    return next(iter(children(record)), None)


def _write_lower(lower: Path, layout: Layout, state: ClusterState, how: How) -> None:
    two = state.containerd == CONTAINERD_2
    tools = [tool for tool in REAL_NODE if tool != "coredns" and (two or tool.startswith("kube"))]
    temporary = lower.with_name(".node-root.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    images = node_images(cached("coredns"), how)
    write_lower(temporary, {tool: cached(tool) for tool in tools}, images, layout.pki / "ca.crt")
    temporary.rename(lower)


def _write_disk(node: Path, layout: Layout, state: ClusterState, name: str) -> None:
    """Write the disk of a new node atomically."""
    temporary = node.with_name(f".{node.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    make_disk(temporary)
    assert state.range is not None
    server = f"https://{state.address}:{state.ports['kube-apiserver']}"
    write_upper(temporary / "upper", layout, server, (name, NODE_NAMES.index(name), Addresses(state.range)))
    temporary.rename(node)


def _wait(api: Api, layout: Layout, state: ClusterState, names: list[str], how: How) -> None:
    step = f"{len(names)} real node{'s' if len(names) > 1 else ''}"
    with stepping(how.progress, step):
        for path, manifest in coredns_objects(coredns_image()):
            # GET first: a POST of an existing Service returns "invalid", because its own address is allocated.
            if api.ok(f"{path}/{manifest['metadata']['name']}"):
                continue
            status, answer = api.call("POST", path, manifest)
            if status not in {HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
                raise LocalClusterError(f"{manifest['kind']} of CoreDNS was rejected: {answer.get('message', status)}")
        wait_until(
            lambda: not _late(layout, state, names, api),
            lambda: _trouble(layout, names, _late(layout, state, names, api)),
            how.abort,
        )
        how.progress.note(step, "Ready; waiting for DNS")
        wait_until(
            lambda: _dns_runs(api), lambda: f"CoreDNS is not ready; see `kubectl -n {NAMESPACE} get pods`", how.abort
        )


def _dns_runs(api: Api) -> bool:
    _, answer = api.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/coredns")
    return bool(answer.get("status", {}).get("availableReplicas"))


def _late(layout: Layout, state: ClusterState, names: list[str], api: Api) -> list[str]:
    """Return the nodes without Ready since their start: the API server reports Ready for 40 s after a node ended.

    Raises:
        StartError: a node ended; with the end of its log.
    """
    for name in names:
        if not alive(state.processes[name]):
            log = layout.log(name)
            raise StartError(f"node {name} ended; the end of {log}:\n{tail((log, 0))}")
    _, answer = api.call("GET", f"/api/v1/nodes?resourceVersion=0&labelSelector={_SELECTOR}")
    nodes = {node["metadata"]["name"]: node["status"] for node in answer.get("items", [])}
    return [name for name in names if not _ready(nodes.get(name, {}), _boot_id(state.processes[name]))]


def _ready(status: dict[str, Any], boot_id: str) -> bool:
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
    return ready and status["nodeInfo"]["bootID"] == boot_id


def _boot_id(record: ProcessRecord) -> str:
    """Return the boot id of a node; empty if it does not exist yet."""
    inside = first_process(record)
    try:
        return Path(f"/proc/{inside.pid}/root/run/node/proc/boot_id").read_text("ascii").strip() if inside else ""
    except OSError:
        return ""


def _trouble(layout: Layout, names: list[str], late: list[str]) -> str:
    """Return an error message with the name of a node that is not Ready and the end of its kubelet log."""
    name = (late or names)[0]
    logs = layout.node(name) / "disk" / "log"
    kubelet = logs / "kubelet.log"
    return f"node {name} is not Ready; the end of {kubelet} ({logs} has all of its logs):\n{tail((kubelet, 0))}"


def wait_until(check: Callable[[], bool], reason: Callable[[], str], abort: threading.Event) -> None:
    """Wait until ``check`` succeeds; after 180 s, raise an error with the text of ``reason``.

    Raises:
        StartError: after that time. AbortedError: stop was requested.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while not check():
        if abort.is_set():
            raise AbortedError("stop requested while waiting for nodes")
        if time.monotonic() > deadline:
            raise StartError(f"not ready after {_READY_SECONDS:.0f} s: {reason()}")
        time.sleep(_POLL)
