"""Which clusters there are: the directory of their state directories, and who may touch one.

In: names. Out: layouts and states; removal of what is over. Called by everything that makes, lists or ends a cluster.
Invariant: directories are made, judged and removed under one lock, which is held for moments only; and a directory
whose starter is dead and whose cluster is not complete is never left by a command that saw it.
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
    """Return the lock over the directory of clusters."""
    return FileLock(_lock_file())


def unique_name() -> str:
    """Return a name for a throwaway cluster."""
    return f"tmp-{secrets.token_hex(5)}"


def names() -> list[str]:
    """Return the names of all clusters of this user, complete or not."""
    return sorted(path.name for path in clusters_root().glob("*") if path.is_dir() and path.name[0] != ".")


def claim(
    name: str, *, owned: bool, audit: bool, quick_jobs: bool = True, long_leases: bool = False
) -> tuple[Layout, ClusterState, Guard | None]:
    """Return the cluster of that name, or make its directory and have a supervisor watch over it.

    The guard is there only for a new one. ``owned``: it must be new.

    Raises:
        LocalClusterError: if the existing one belongs to a live process, or must not exist.
    """
    layout = Layout.of(name)
    with claims():
        state = settle(layout)
        if state is not None:
            refuse_if_owned(layout, state)
            if owned:
                raise LocalClusterError(f"cluster '{name}' exists already: choose another name, or take it down first")
            return layout, state, None
        token = secrets.token_hex(16)
        made_with = {"audit": audit, "quick_jobs": quick_jobs, "long_leases": long_leases}
        state = ClusterState(name=name, token=token, starter=current(), owned=owned, **made_with)
        return layout, state, _make(layout, state)


def _make(layout: Layout, state: ClusterState) -> Guard:
    """Make the directory with its state, whole from the first moment, when someone already watches over it."""
    watcher = guard(layout.root, state.token, _lock_file())
    staging = Layout(layout.root.with_name(f".{state.token}"))
    staging.root.mkdir(mode=0o700)
    save(staging, state)
    staging.root.rename(layout.root)
    return watcher


def settle(layout: Layout) -> ClusterState | None:
    """Return the state of an existing cluster; remove what a dead starter left behind, and return None for it.

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
    """Raise LocalClusterError if another live process is bringing the cluster up, or owns it."""
    if state.starter is None or state.starter == current() or not alive(state.starter):
        return
    what = "belongs to" if state.complete else "is being brought up by"
    raise LocalClusterError(
        f"cluster '{layout.name}' {what} process {state.starter.pid}: end that one, and its cluster goes with it"
    )


def remove(layout: Layout) -> None:
    """Kill what carries the cluster's token and remove its directory. Only under :func:`claims`."""
    state = load(layout)
    token = load_token(layout)
    if token is not None:
        # First, while those are there by whom it knows what they started.
        sweep(token)
    if state is not None:
        end(state.processes.values(), grace=0)
    shutil.rmtree(layout.root, ignore_errors=True)


def discard(layout: Layout, state: ClusterState, watcher: Guard) -> None:
    """Remove a cluster that this process started and still watches over."""
    with claims():
        # Not if the supervisor removed it already and someone else took the name.
        if load_token(layout) == state.token:
            remove(layout)
    watcher.abandon()


def _lock_file() -> Path:
    root = clusters_root()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root / ".lock"
