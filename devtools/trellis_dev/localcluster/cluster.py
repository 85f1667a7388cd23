"""Local clusters: start, inspect, disturb for fault tests, and stop.

In: a name and options. Out: a running control plane with NATS, and its addresses. Called by the command line, by
owners of temporary clusters and by fault tests.

A cluster is its state directory plus the processes with its token. During `up` a supervisor watches both until the
cluster is complete, so that an interrupted or killed `up` leaves neither. If the supervisor is killed too, the next
command that finds the directory with a dead starter cleans up.
Invariant: only `down` deletes data of a complete cluster.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from trellis_dev.localcluster import realnode, registry, tools
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.certs import write_pki, write_private
from trellis_dev.localcluster.commands import AUDIT_POLICY, PORTS
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.guard import Guard
from trellis_dev.localcluster.lattice_nats import ensure_lattice_nats, start_lattice_nats
from trellis_dev.localcluster.lattice_servers import lattice_servers
from trellis_dev.localcluster.lattices import Lattices, ensure_lattices, is_part, start_parts
from trellis_dev.localcluster.nodes import ensure_nodes
from trellis_dev.localcluster.paths import Layout, check_name
from trellis_dev.localcluster.processes import alive, children, end, freeze, send, wait_ended
from trellis_dev.localcluster.progress import Progress, Quiet
from trellis_dev.localcluster.requirements import require
from trellis_dev.localcluster.stages import ensure_stages, merge
from trellis_dev.localcluster.start import Starter
from trellis_dev.localcluster.state import LATTICE_NATS, NODE_NAMES, ClusterInfo, ClusterState, describe, load, save

_STOP_SECONDS: Final = 10.0
_GRACEFUL: Final = frozenset(PORTS) - {"kube-apiserver"}
"""Components that get SIGTERM before SIGKILL; kube-apiserver would drain for up to a minute."""


@dataclass(frozen=True)
class Wanted:
    """Options of a cluster. ``owned``: it exists only as long as the process that starts it."""

    name: str
    nodes: int = 0
    jaeger: bool = False
    audit: bool = False
    kwok_stages: tuple[str, ...] = ()
    owned: bool = False
    quick_jobs: bool = True
    long_leases: bool = False
    real_nodes: int = 0
    containerd: str = "2"
    lattices: Lattices | None = None
    lattice_nats: bool = False

    @property
    def components(self) -> set[str]:
        """Names of the components that have to run."""
        return {tool for tool in PORTS if tool != "jaeger" or self.jaeger}


def up(  # noqa: PLR0913 (keywords, all with defaults)
    name: str,
    *,
    nodes: int = 0,
    jaeger: bool = False,
    audit: bool = False,
    kwok_stages: Sequence[str] = (),
    real_nodes: int = 0,
    containerd: str = "2",
    lattices: Lattices | None = None,
    lattice_nats: bool = False,
    progress: Progress | None = None,
) -> ClusterInfo:
    """Start a cluster, or complete the running cluster of that name; return its addresses.

    A running cluster keeps its data: stopped components are restarted, missing nodes and Jaeger are added. ``audit``
    logs every write to the API server (``audit_log`` of the result); ``kwok_stages`` are kwok Stage documents. Both
    apply only to a new cluster. ``real_nodes`` run a kubelet and containerd ("2" or "1.6"). ``lattices`` adds wadm and
    missing wasmCloud hosts; ``lattice_nats`` adds a NATS server through which hosts in pods of real nodes join the
    lattices.

    Raises:
        ToolError: a program is missing and cannot be built.
        LocalClusterError: the cluster cannot be started; nothing of a new cluster remains.
    """
    made_with = (nodes, jaeger, audit, tuple(kwok_stages))
    wanted = Wanted(
        check_name(name),
        *made_with,
        real_nodes=real_nodes,
        containerd=containerd,
        lattices=lattices,
        lattice_nats=lattice_nats,
    )
    layout, state, watcher = bring_up(wanted, progress or Quiet(), threading.Event())
    if watcher is not None:
        watcher.release()
    return describe(layout, state)


def bring_up(wanted: Wanted, progress: Progress, abort: threading.Event) -> tuple[Layout, ClusterState, Guard | None]:
    """Implement :func:`up`; also return the guard of a new cluster, which the caller has to release.

    Raises:
        AbortedError: ``abort`` was set; and the errors of `up`.
    """
    if wanted.real_nodes:
        require()  # before a build of several minutes
    if wanted.lattices is not None:
        wanted.lattices.check()
    programs = prepare([*(tool for tool in PORTS if tool in wanted.components), "kubectl"], progress, abort)
    how = How(progress, abort)
    if wanted.real_nodes:
        realnode.prepare(how)
    if wanted.lattices is not None:
        programs |= lattice_servers(how)
    stages = merge(ensure_stages(progress, abort), wanted.kwok_stages)
    layout, state, watcher = registry.claim(
        wanted.name,
        owned=wanted.owned,
        audit=wanted.audit,
        quick_jobs=wanted.quick_jobs,
        long_leases=wanted.long_leases,
    )
    try:
        with FileLock(layout.root / "lock"):
            _link_programs(layout, programs)
            _ensure_network(layout, state, wanted, new=watcher is not None)
            if watcher is not None:
                _write_files(layout, state, stages)
            expected = wanted.components | (set(state.processes) & set(PORTS))
            ended = {tool for tool in expected if tool not in state.processes or not alive(state.processes[tool])}
            Starter(layout, state, progress, abort).start(ended)
            _complete(layout, state, wanted, how)
    except BaseException:
        if watcher is not None:
            registry.discard(layout, state, watcher)
        raise
    return layout, state, watcher


def prepare(wanted: Iterable[str], progress: Progress, abort: threading.Event | None = None) -> dict[str, Path]:
    """Return the program of each tool, building missing ones; with kwok also download its additional files.

    Raises:
        ToolError: a tool is missing and cannot be built. AbortedError: ``abort`` was set.
    """
    found = tools.ensure_all(wanted, progress, abort)
    if "kwok" in found:
        ensure_stages(progress, abort or threading.Event())
    return found


def down(name: str) -> bool:
    """Stop a cluster and remove everything of it; return whether it existed.

    All processes get SIGKILL at once: their data is deleted too, and kube-apiserver would drain for a minute.

    Raises:
        LocalClusterError: another process is starting the cluster, or owns it.
    """
    layout = Layout.of(name)
    with registry.claims():
        state = registry.settle(layout)
        if state is None:
            return False
        registry.refuse_if_owned(layout, state)
        registry.remove(layout)
    return True


def status(name: str | None = None) -> list[ClusterInfo]:
    """Return the complete clusters, or the one of that name; ``pids`` contains only running components.

    Leftovers of dead starters are removed.
    """
    found = []
    for layout in map(Layout.of, [name] if name is not None else registry.names()):
        with registry.claims():
            state = registry.settle(layout)
        if state is not None and state.complete:
            info = describe(layout, state)
            pids = {tool: record.pid for tool, record in state.processes.items() if alive(record)}
            found.append(info.model_copy(update={"pids": pids}))
    return found


def kill(name: str, tool: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to one component, for fault tests; return when SIGKILL has ended it, or SIGSTOP stopped it.

    Raises:
        LocalClusterError: the cluster does not exist, or the component is not running.
    """
    _, state = _running(name, tool)
    record = state.processes[tool]
    providers = children(record, deep=True) if number == signal.SIGKILL and is_part(state, tool) else []
    if not (freeze(record) if number == signal.SIGSTOP else send(record, number)):
        raise LocalClusterError(f"{tool} of cluster '{name}' is not running")
    if number == signal.SIGKILL:
        wait_ended([record], _STOP_SECONDS)
        end(providers, grace=0)  # like a deleted pod


def restart(name: str, tool: str, progress: Progress | None = None) -> ClusterInfo:
    """Restart one component on the same ports with the same data; a running one is stopped first.

    Raises:
        LocalClusterError: the cluster or component does not exist.
        StartError: the component does not become ready.
    """
    layout, _ = _running(name, tool)
    with FileLock(layout.root / "lock"):
        _, state = _running(name, tool)
        graceful = tool in _GRACEFUL or is_part(state, tool)
        providers = children(state.processes[tool], deep=True) if is_part(state, tool) else []
        end([state.processes[tool]], grace=_STOP_SECONDS if graceful else 0)
        end(providers, grace=0)
        how = How(progress or Quiet(), threading.Event())
        if is_part(state, tool):
            start_parts(layout, state, [tool], how)
        elif tool == LATTICE_NATS:
            start_lattice_nats(layout, state, how)
        else:
            Starter(layout, state, how.progress, how.abort).restart(tool)
    return describe(layout, state)


def _ensure_network(layout: Layout, state: ClusterState, wanted: Wanted, *, new: bool) -> None:
    """Start the network of real nodes, if the cluster has them; it cannot be added to an existing cluster."""
    if new:
        layout.logs.mkdir(mode=0o700)
        state.containerd = wanted.containerd
    elif wanted.real_nodes and (state.range is None or state.containerd != wanted.containerd):
        has = f"containerd {state.containerd} on its real nodes" if state.range is not None else "no real nodes"
        raise LocalClusterError(
            f"cluster '{layout.name}' was created with {has}: choose another name, or stop it first"
        )
    if state.range is not None or wanted.real_nodes:
        realnode.ensure_network(layout, state)
    elif wanted.lattice_nats:
        raise LocalClusterError(
            f"cluster '{layout.name}' has no real nodes whose pods can reach a NATS: add --real-node"
        )


def _complete(layout: Layout, state: ClusterState, wanted: Wanted, how: How) -> None:
    if wanted.nodes:
        api = Api.of_pki(state.ports["kube-apiserver"], layout.pki, state.address)
        try:
            ensure_nodes(api, wanted.nodes, how.progress, how.abort)
        finally:
            api.close()
    if state.range is not None:
        realnode.ensure_real_nodes(layout, state, wanted.real_nodes, how)
    ensure_lattice_nats(layout, state, how, wanted=wanted.lattice_nats)
    ensure_lattices(layout, state, wanted.lattices, how)
    state.complete = True
    if not state.owned:
        state.starter = None
    save(layout, state)


def _write_files(layout: Layout, state: ClusterState, stages: str) -> None:
    for directory in (layout.pki, layout.data):
        directory.mkdir(mode=0o700)
    write_pki(layout.pki, state.address, NODE_NAMES if state.range is not None else ())
    write_private(layout.stages, stages.encode())
    if state.audit:
        write_private(layout.root / "audit-policy.yaml", AUDIT_POLICY.encode())


def _link_programs(layout: Layout, programs: Mapping[str, Path]) -> None:
    layout.bin.mkdir(mode=0o700, exist_ok=True)
    for tool, program in programs.items():
        link = layout.bin / tool
        link.unlink(missing_ok=True)
        link.symlink_to(program)


def _running(name: str, tool: str) -> tuple[Layout, ClusterState]:
    layout = Layout.of(name)
    state = load(layout)
    if state is None:
        raise LocalClusterError(f"cluster '{name}' does not exist: see `trellis dev status`")
    if tool not in state.processes:
        raise LocalClusterError(f"cluster '{name}' has no component {tool}: it has {', '.join(state.processes)}")
    return layout, state
