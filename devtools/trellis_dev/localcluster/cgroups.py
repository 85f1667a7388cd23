"""The control groups of the real nodes of a cluster: one group per node in every hierarchy of this machine.

In: the token of a cluster and the name of a node. Out: directories below the group of this process (cgroup v1) or the
root (v2), and the mounts of the node. Called before a node starts. They are removed by
:func:`trellis_dev.localcluster.supervisor.sweep`, which finds them by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.errors import StartError
from trellis_dev.localcluster.supervisor import remove_groups, trunk

_PROC: Final = Path("/proc/self")
_OPTIONS: Final = frozenset({"rw", "ro", "noprefix", "clone_children", "xattr", "cpuset_v2_mode"})


@dataclass(frozen=True)
class Groups:
    """Groups of one node: its directory in each hierarchy, and the hierarchies as mount options (none with v2)."""

    directories: tuple[Path, ...]
    hierarchies: tuple[str, ...]

    @property
    def unified(self) -> bool:
        """True if this machine uses the unified hierarchy of cgroup v2."""
        return not self.hierarchies


def make_groups(token: str, node: str) -> Groups:
    """Re-create the groups of a node; leftovers of its previous run are removed first.

    Raises:
        StartError: a group cannot be created; with the path.
    """
    parents, options = hierarchies()
    directories = []
    for parent in parents:
        directory = parent / trunk(token) / node
        try:
            remove_groups(directory)
            directory.mkdir(parents=True)
            for made in (directory.parent, directory):
                _prepare(made)
        except OSError as error:
            raise StartError(f"node {node} needs a control group: {directory}: {error.strerror}") from error
        directories.append(directory)
    return Groups(tuple(directories), tuple(options))


def _prepare(group: Path) -> None:
    """Set what a new group does not inherit: CPUs and memory nodes (v1), controllers of its children (v2)."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = group / name
        if file.exists() and not (group / "cgroup.controllers").exists() and not file.read_text().strip():
            file.write_text((group.parent / name).read_text())
    controllers = group.parent / "cgroup.controllers"
    if controllers.exists():
        for controller in controllers.read_text().split():
            (group.parent / "cgroup.subtree_control").write_text(f"+{controller}")


def hierarchies() -> tuple[list[Path], list[str]]:
    """Return the parent directories for groups, and with v1 the mount options of each hierarchy."""
    own: dict[str, str] = {}
    for line in (_PROC / "cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path
    parents, options = [], []
    unified: Path | None = None
    for line in (_PROC / "mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        root, mountpoint = before.split()[3:5]
        kind, _, superblock = after.split(maxsplit=2)
        if kind == "cgroup2":
            unified = Path(mountpoint)
        elif kind == "cgroup":
            controllers = ",".join(option for option in superblock.split(",") if option not in _OPTIONS)
            group = _of(own, controllers)
            if group is not None and controllers not in options:
                parents.append(Path(mountpoint) / group.removeprefix(root).lstrip("/"))
                options.append(controllers)
    if parents:
        return parents, options
    # A group that delegates controllers must not contain processes, and that of this process does: use the root.
    return ([unified] if unified is not None else []), []


def _of(own: dict[str, str], controllers: str) -> str | None:
    """Return the path of this process in the hierarchy of these controllers, in any order of their names."""
    wanted = set(re.split(",", controllers))
    return next((path for names, path in own.items() if set(names.split(",")) == wanted), None)
