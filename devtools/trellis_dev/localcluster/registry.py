"""The registry of clusters: the directory of their state directories, and access control for them.

In: names. Out: layouts and states; removal of leftovers. Called by all code that creates, lists or ends a cluster.
Invariant: directories are created, evaluated and removed under one lock, which is held briefly; and every command
removes a directory whose starter is dead and whose cluster is incomplete.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from filelock import FileLock

from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.guard import Guard, guard
from trellis_dev.localcluster.paths import Layout, clusters_root
from trellis_dev.localcluster.processes import alive, current, end
from trellis_dev.localcluster.state import ClusterState, load, load_token, save
from trellis_dev.localcluster.supervisor import sweep


def claims() -> FileLock:
    """Return the lock of the directory of clusters."""
    return FileLock(_lock_file())


def unique_name() -> str:
    """Return a unique name for a temporary cluster."""
    return f"tmp-{secrets.token_hex(5)}"


def names() -> list[str]:
    """Return the names of all clusters of this user, complete or not."""
    return sorted(path.name for path in clusters_root().glob("*") if path.is_dir() and path.name[0] != ".")


def claim(
    name: str, *, owned: bool, audit: bool, quick_jobs: bool = True, long_leases: bool = False
) -> tuple[Layout, ClusterState, Guard | None]:
    """Return the cluster of that name, or create its directory with a supervisor.

    A guard is returned only for a new cluster. ``owned``: it must be new.

    Raises:
        LocalClusterError: the existing cluster belongs to a running process, or must not exist.
    """
    layout = Layout.of(name)
    with claims():
        state = settle(layout)
        if state is not None:
            refuse_if_owned(layout, state)
            if owned:
                raise LocalClusterError(f"cluster '{name}' already exists: choose another name, or stop it first")
            return layout, state, None
        token = secrets.token_hex(16)
        made_with = {"audit": audit, "quick_jobs": quick_jobs, "long_leases": long_leases}
        state = ClusterState(name=name, token=token, starter=current(), owned=owned, **made_with)
        return layout, state, _make(layout, state)


def _make(layout: Layout, state: ClusterState) -> Guard:
    """Create the directory with its complete state atomically, after the supervisor has started."""
    watcher = guard(layout.root, state.token, _lock_file())
    staging = Layout(layout.root.with_name(f".{state.token}"))
    staging.root.mkdir(mode=0o700)
    save(staging, state)
    staging.root.rename(layout.root)
    return watcher


def settle(layout: Layout) -> ClusterState | None:
    """Return the state of an existing cluster; remove leftovers of a dead starter and return None for it.

    Only under :func:`claims`.
    """
    if not layout.root.is_dir():
        return None
    state = load(layout)
    if state is None or (state.starter is not None and not alive(state.starter)):
        remove(layout)
        return None
    return state


def refuse_if_owned(layout: Layout, state: ClusterState) -> None:
    """Raise LocalClusterError if another running process is starting the cluster, or owns it."""
    if state.starter is None or state.starter == current() or not alive(state.starter):
        return
    what = "belongs to" if state.complete else "is being started by"
    raise LocalClusterError(
        f"cluster '{layout.name}' {what} process {state.starter.pid}: terminate that process to remove its cluster"
    )


def remove(layout: Layout) -> None:
    """Kill the processes with the token of the cluster and remove its directory. Only under :func:`claims`."""
    state = load(layout)
    token = load_token(layout)
    if token is not None:
        # First, while their parents still run, which identify their child processes.
        sweep(token)
    if state is not None:
        end(state.processes.values(), grace=0)
    shutil.rmtree(layout.root, ignore_errors=True)


def discard(layout: Layout, state: ClusterState, watcher: Guard) -> None:
    """Remove a cluster that this process started and still supervises."""
    with claims():
        # Not if the supervisor already removed it and another process has claimed the name.
        if load_token(layout) == state.token:
            remove(layout)
    watcher.abandon()


def _lock_file() -> Path:
    root = clusters_root()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root / ".lock"
