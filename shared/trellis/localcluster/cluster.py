"""Local clusters: bring one up, look at it, break it on purpose, take it down.

In: a name and options. Out: a running control plane with NATS, and how to reach it. Called by the command line, the
demo, benchmarks and test fixtures.

A cluster is its state directory plus the processes that carry its token. `up` lets a supervisor watch over it until
the cluster is complete, so that an `up` that is interrupted or killed leaves neither; a cluster of
:func:`local_cluster` is watched for as long as its owner lives. Should the supervisor be killed too, the next command
that meets the directory finds its starter dead and cleans up.
Invariant: a directory without a live starter and without a complete cluster is never left by a command that saw it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from trellis.localcluster import tools
from trellis.localcluster.api import Api
from trellis.localcluster.certs import write_pki, write_private
from trellis.localcluster.commands import AUDIT_POLICY, PORTS
from trellis.localcluster.errors import LocalClusterError
from trellis.localcluster.guard import Guard, guard
from trellis.localcluster.nodes import ensure_nodes
from trellis.localcluster.paths import Layout, check_name, clusters_root
from trellis.localcluster.processes import alive, current, end, send, wait_gone
from trellis.localcluster.progress import Progress, Quiet
from trellis.localcluster.stages import ensure_stages, merge
from trellis.localcluster.start import Starter
from trellis.localcluster.state import ClusterInfo, ClusterState, describe, load, save
from trellis.localcluster.supervisor import sweep

_STOP_SECONDS: Final = 10.0
_GRACEFUL: Final = frozenset({"nats-server", "etcd", "kube-controller-manager", "kube-scheduler", "kwok"})
"""What is asked to end before it is made to; kube-apiserver would drain for up to a minute."""


@dataclass(frozen=True)
class _Wanted:
    name: str
    nodes: int
    jaeger: bool
    audit: bool
    kwok_stages: tuple[str, ...]
    owned: bool

    @property
    def components(self) -> set[str]:
        return {tool for tool in PORTS if tool != "jaeger" or self.jaeger}


def up(
    name: str,
    *,
    nodes: int = 0,
    jaeger: bool = False,
    audit: bool = False,
    kwok_stages: Sequence[str] = (),
    progress: Progress | None = None,
) -> ClusterInfo:
    """Bring a cluster up, or complete the one of that name that runs already, and return how to reach it.

    A running cluster keeps its data: components that ended are started again, missing nodes are created. ``audit``
    logs every write to the API server (``audit_log`` of the result); ``kwok_stages`` are kwok Stage documents. Both
    are taken only when the cluster is made.

    Raises:
        ToolError: if a program is missing and cannot be built.
        LocalClusterError: if it cannot be brought up; nothing of it is left then.
    """
    wanted = _Wanted(check_name(name), nodes, jaeger, audit, tuple(kwok_stages), owned=False)
    info, watcher = _up(wanted, progress or Quiet(), threading.Event())
    if watcher is not None:
        watcher.release()
    return info


@contextlib.asynccontextmanager
async def local_cluster(
    name: str | None = None,
    *,
    nodes: int = 0,
    jaeger: bool = False,
    audit: bool = False,
    kwok_stages: Sequence[str] = (),
    progress: Progress | None = None,
) -> AsyncIterator[ClusterInfo]:
    """Have a cluster for the time of a block, under a name of its own unless one is given.

    Gone when the block ends, however it ends, and when this process is killed. Errors as :func:`up`, and
    LocalClusterError if a cluster of that name exists.
    """
    wanted = _Wanted(check_name(name or _unique_name()), nodes, jaeger, audit, tuple(kwok_stages), owned=True)
    abort = threading.Event()
    starting = asyncio.ensure_future(asyncio.to_thread(_up, wanted, progress or Quiet(), abort))
    try:
        info, watcher = await asyncio.shield(starting)
    except asyncio.CancelledError:
        abort.set()
        with contextlib.suppress(LocalClusterError):
            _, watcher = await starting
            await asyncio.to_thread(_discard, wanted.name, watcher)
        raise
    try:
        yield info
    finally:
        await asyncio.to_thread(_discard, wanted.name, watcher)


@contextlib.contextmanager
def owned_cluster(
    *, nodes: int = 0, jaeger: bool = False, audit: bool = False, kwok_stages: Sequence[str] = ()
) -> Iterator[ClusterInfo]:
    """Do the same as :func:`local_cluster` where no event loop runs, as in a pytest fixture."""
    wanted = _Wanted(_unique_name(), nodes, jaeger, audit, tuple(kwok_stages), owned=True)
    info, watcher = _up(wanted, Quiet(), threading.Event())
    try:
        yield info
    finally:
        _discard(wanted.name, watcher)


def down(name: str) -> bool:
    """Take a cluster down and remove everything of it; return whether there was one.

    Everything is killed at once: it is thrown away together with its data, and kube-apiserver would drain for a
    minute.

    Raises:
        LocalClusterError: if another process is bringing it up at this moment, or owns it.
    """
    layout = Layout.of(name)
    with _claims():
        if not layout.root.is_dir():
            return False
        _refuse_if_owned(layout)
        _remove(layout)
    return True


def status(name: str | None = None) -> list[ClusterInfo]:
    """Return the complete clusters, or the one of that name; ``pids`` lists only components that run.

    What a dead starter left behind is cleaned up on the way.
    """
    root = clusters_root()
    names = [name] if name is not None else sorted(path.name for path in root.glob("*") if path.is_dir())
    found = []
    for layout in map(Layout.of, names):
        with _claims():
            state = _settle(layout)
        if state is not None and state.complete:
            info = describe(layout, state)
            pids = {tool: record.pid for tool, record in state.processes.items() if alive(record)}
            found.append(info.model_copy(update={"pids": pids}))
    return found


def kill(name: str, tool: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to one component, for tests of faults; returns when it has ended if the signal is SIGKILL.

    Raises:
        LocalClusterError: if there is no such cluster, or the component does not run.
    """
    _, state = _running(name, tool)
    if not send(state.processes[tool], number):
        raise LocalClusterError(f"{tool} of cluster '{name}' does not run")
    if number == signal.SIGKILL:
        wait_gone([state.processes[tool]], _STOP_SECONDS)


def restart(name: str, tool: str, progress: Progress | None = None) -> ClusterInfo:
    """Start one component again on the same ports with the same data, ending it before if it runs.

    Raises:
        LocalClusterError: if there is no such cluster or component.
        StartError: if it does not come back.
    """
    layout, state = _running(name, tool)
    end([state.processes[tool]], grace=_STOP_SECONDS if tool in _GRACEFUL else 0)
    Starter(layout, state, progress or Quiet(), threading.Event()).restart(tool)
    return describe(layout, state)


def _up(wanted: _Wanted, progress: Progress, abort: threading.Event) -> tuple[ClusterInfo, Guard | None]:
    """Return the cluster, and the guard of a new one."""
    programs = tools.ensure_all([*sorted(wanted.components), "kubectl"], progress, abort)
    stages = merge(ensure_stages(progress, abort), wanted.kwok_stages)
    layout = Layout.of(wanted.name)
    with _claims():
        state = _settle(layout)
        watcher = None
        if state is None:
            state = ClusterState(
                name=wanted.name,
                token=secrets.token_hex(16),
                starter=current(),
                owned=wanted.owned,
                audit=wanted.audit,
            )
            layout.root.mkdir(mode=0o700, parents=True)
            save(layout, state)
            watcher = guard(layout.root, state.token)
        elif wanted.owned or state.starter is not None:
            _refuse_if_owned(layout)
            raise LocalClusterError(f"cluster '{wanted.name}' exists: choose another name")
    try:
        _link(layout, programs)
        if watcher is not None:
            _prepare(layout, state, stages)
        dead = {tool for tool in wanted.components if tool not in state.processes or not alive(state.processes[tool])}
        Starter(layout, state, progress, abort).start(dead)
        _complete(layout, state, wanted.nodes, (progress, abort))
    except BaseException:
        if watcher is not None:
            watcher.abandon()
            _remove(layout)
        raise
    return describe(layout, state), watcher


def _complete(layout: Layout, state: ClusterState, nodes: int, how: tuple[Progress, threading.Event]) -> None:
    api = Api.of_pki(state.ports["kube-apiserver"], layout.pki)
    try:
        if nodes:
            ensure_nodes(api, nodes, *how)
    finally:
        api.close()
    state.complete = True
    if not state.owned:
        state.starter = None
    save(layout, state)


def _prepare(layout: Layout, state: ClusterState, stages: str) -> None:
    for directory in (layout.pki, layout.data, layout.logs):
        directory.mkdir(mode=0o700)
    write_pki(layout.pki)
    write_private(layout.stages, stages.encode())
    if state.audit:
        write_private(layout.root / "audit-policy.yaml", AUDIT_POLICY.encode())


def _link(layout: Layout, programs: dict[str, Path]) -> None:
    layout.bin.mkdir(mode=0o700, exist_ok=True)
    for tool, program in programs.items():
        link = layout.bin / tool
        if not link.is_symlink():
            link.symlink_to(program)


def _claims() -> FileLock:
    """Return the lock under which directories of clusters are made, judged and removed; held for moments only."""
    root = clusters_root()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileLock(root / ".lock")


def _settle(layout: Layout) -> ClusterState | None:
    """Return the state of an existing cluster; remove what a dead starter left behind, and return None for that."""
    if not layout.root.is_dir():
        return None
    state = load(layout)
    abandoned = state is None or (state.starter is not None and not alive(state.starter))
    if abandoned:
        _remove(layout)
        return None
    return state


def _refuse_if_owned(layout: Layout) -> None:
    state = load(layout)
    if state is None or state.starter is None or state.starter == current() or not alive(state.starter):
        return
    what = "belongs to" if state.complete else "is being brought up by"
    raise LocalClusterError(
        f"cluster '{layout.name}' {what} process {state.starter.pid}: end that one first, its cluster goes with it"
    )


def _remove(layout: Layout) -> None:
    """Kill what carries the cluster's token and remove its directory."""
    state = load(layout)
    if state is not None:
        end(state.processes.values(), grace=0)
        sweep(state.token)
    shutil.rmtree(layout.root, ignore_errors=True)


def _discard(name: str, watcher: Guard | None) -> None:
    """Take an owned cluster down."""
    _remove(Layout.of(name))
    if watcher is not None:
        watcher.abandon()


def _running(name: str, tool: str) -> tuple[Layout, ClusterState]:
    layout = Layout.of(name)
    state = load(layout)
    if state is None:
        raise LocalClusterError(f"there is no cluster '{name}': see `trellis dev status`")
    if tool not in state.processes:
        raise LocalClusterError(f"cluster '{name}' has no {tool}: it has {', '.join(state.processes)}")
    return layout, state


def _unique_name() -> str:
    return f"tmp-{secrets.token_hex(5)}"
