"""Private directories: they contain code that is run, and memory of guests.

Called by ``modules`` and ``snapshots``. Invariant: files in such a directory were written by this account.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")


def private_directory(path: Path) -> Path:
    """Create ``path`` as a directory with access for this account only (0700); return it.

    Raises:
        PermissionError: Another account owns it, or it is a link: its content cannot be trusted.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(
            f"{path} is not a directory owned by account {os.geteuid()}, which runs this service: remove it, or set "
            "TRELLIS_CONTROLLER_DATA_DIR to another directory"
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def is_in_memory(path: Path) -> bool:
    """Return whether a directory is on a tmpfs; False if the system does not report mounts."""
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
    """Write a file atomically, readable only by this account."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
