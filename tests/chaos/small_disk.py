"""A disk of a few MiB that can be filled, for a server that is to have no room.

In: a directory. Out: a mounted tmpfs, filled and emptied. Called by ``bus_servers`` and ``run``. Mounts are in a
namespace of the runner's own, which ends with it: nothing is left of one that was killed. It takes the right to mount;
who has none has no full disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OWN_MOUNTS: Final = "SUITE_OWN_MOUNTS"
_SIZE: Final = "size=96m"
_FILLER: Final = "filler"
_UNSHARE: Final = ("unshare", "--mount", "--propagation", "private")


def can_mount() -> bool:
    """Return whether this process may mount what nobody else sees."""
    return OWN_MOUNTS in os.environ


def have_own_mounts() -> None:
    """Become the same program in a mount namespace of its own, if that can be had; otherwise go on."""
    if OWN_MOUNTS in os.environ or shutil.which(_UNSHARE[0]) is None:
        return
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0:
        os.environ[OWN_MOUNTS] = "1"
        os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, *sys.argv])


@contextlib.contextmanager
def mounted(directory: Path) -> Iterator[None]:
    """Have a small disk at a directory for the time of a block.

    Raises:
        OSError: it cannot be mounted.
    """
    directory.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", _SIZE, "none", str(directory)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(errno.EPERM, done.stderr.strip(), str(directory))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=False)


def fill(directory: Path) -> None:
    """Leave no room at all."""
    with (directory / _FILLER).open("wb", buffering=0) as file:
        for length in (1 << 16, 1):
            with contextlib.suppress(OSError):  # what the test is about
                while True:
                    file.write(b"\1" * length)


def free(directory: Path) -> None:
    """Give the room back."""
    (directory / _FILLER).unlink(missing_ok=True)


def empty(directory: Path) -> None:
    """Remove all that is there, and leave the directory, which may be a mount."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
