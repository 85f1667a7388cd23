"""Directories that nobody else may look into or change: code that is run and memory of guests lie there.

Called by ``modules`` and ``snapshots``. Invariant: what is read from such a directory was written by this account.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")


def private_directory(path: Path) -> Path:
    """Make ``path`` a directory of this account's alone (0700); return it.

    Raises:
        PermissionError: It is another owner's, or a link: what is in it could be anything.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(
            f"{path} is not a directory of the account {os.geteuid()} that this service runs as: remove it, or name "
            "another (TRELLIS_CONTROLLER_DATA_DIR)"
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def is_in_memory(path: Path) -> bool:
    """Return whether a directory is on a tmpfs; False where the system does not tell."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    for mount in mounts:  # source: Linux, Documentation/filesystems/proc.rst, 3.5
        fields, _, rest = mount.partition(" - ")
        if fields.split(" ")[2] == wanted:
            return rest.split(" ")[0] == "tmpfs"
    return False


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all; readable by this account alone."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
