"""The metadata of a file, which stay when its content is replaced.

In: a path. Out: its metadata, or their copy on another file. Called by ``disk``, and by tests that compare trees.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def metadata_of(real: Path) -> tuple[int, int, int, tuple[tuple[str, bytes], ...]]:
    """Return mode, uid, gid and extended attributes of a file."""
    status = real.stat()
    attributes: list[tuple[str, bytes]] = []
    with contextlib.suppress(OSError):
        attributes = [(name, os.getxattr(real, name)) for name in sorted(os.listxattr(real))]
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, tuple(attributes)


def copy_metadata(origin: Path, target: Path) -> None:
    """Copy the mode, owner and extended attributes of a file to another one."""
    mode, uid, gid, attributes = metadata_of(origin)
    present = target.stat()
    if (present.st_uid, present.st_gid) != (uid, gid):
        os.chown(target, uid, gid)
    target.chmod(mode)
    for name, value in attributes:
        # Some, like the security label a policy gives, are set already and may not be set again.
        with contextlib.suppress(OSError):
            os.setxattr(target, name, value)
