"""Requirements of real nodes on this machine, checked by trial.

In: nothing. Out: None, or one line that names everything missing. Called by `up` before it builds or starts
anything, and by the test suite for skip reasons. Invariant: the kernel undoes each trial, because it runs in
namespaces that end with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from trellis_dev.localcluster.cgroups import hierarchies
from trellis_dev.localcluster.errors import ToolError

_PROGRAMS: Final = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}
_TRIALS: Final = (
    ("network namespaces with a bridge and veth", ("--net",),
     "ip link add name t1 type veth peer name t2 && ip link add name t3 type bridge && ip link set t1 master t3"),
    ("overlay mounts", ("--mount", "--propagation", "private"),
     "mount -t tmpfs t /mnt && cd /mnt && mkdir a b c d && mount -t overlay o -o lowerdir=a,upperdir=b,workdir=c d"),
    ("device nodes", ("--mount", "--propagation", "private"),
     "mount -t tmpfs t /mnt && mknod /mnt/null c 1 3 && echo >/mnt/null"),
    ("pid, uts, ipc and cgroup namespaces", ("--pid", "--uts", "--ipc", "--cgroup", "--fork"), "true"),
)  # fmt: skip


def missing() -> str | None:
    """Return in one line why this machine cannot run real nodes; None if it can."""
    lacks = list(_lacks())
    return f"real nodes cannot run here; missing: {'; '.join(lacks)}" if lacks else None


def require() -> None:
    """Raise ToolError with the result of :func:`missing`, if there is one."""
    reason = missing()
    if reason is not None:
        raise ToolError(reason)


def _lacks() -> list[str]:
    if sys.platform != "linux":
        return ["Linux"]
    if os.geteuid() != 0:
        return ["root"]
    lacks = [
        f"{program} (package {package})" for program, package in _PROGRAMS.items() if shutil.which(program) is None
    ]
    if shutil.which("debootstrap") is None and (shutil.which("apt-get") is None or shutil.which("dpkg") is None):
        lacks.append("apt-get and dpkg, or debootstrap")
    parents, _ = hierarchies()
    closed = [str(parent) for parent in parents if not os.access(parent, os.W_OK)]
    if closed:
        lacks.append(f"write access to control groups ({', '.join(closed)})")
    if not parents:
        lacks.append("control groups in /sys/fs/cgroup")
    if not lacks:
        lacks += [what for what, namespaces, trial in _TRIALS if not _works(namespaces, trial)]
    return lacks


def _works(namespaces: Sequence[str], trial: str) -> bool:
    argv = ["unshare", *namespaces, "--", "/bin/sh", "-ec", trial]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0  # noqa: S603 - fixed arguments
