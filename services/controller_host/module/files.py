"""Reads a file below a directory, never outside it, even if the directory changes at the same time.

In: a directory and a path. Out: bytes. Called by ``sources``, in a thread. Invariants: every path component is opened
relative to an open directory, so that the checked file is the read file; links must not lead out of the directory.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from trellis.registries.domain.errors import MOST_BYTES, SourceError, SourceReason, too_large

_LINKS: Final = 16
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_below(root: Path, path: str) -> bytes:
    """Return a file's content.

    Raises:
        SourceError: the path does not exist below the directory, is not a file, or is too large.
    """
    try:
        with ExitStack() as stack:
            return _content(_opened(stack, root, path), path)
    except OSError as error:
        reason = SourceReason.NOT_FOUND if isinstance(error, FileNotFoundError) else SourceReason.UNAVAILABLE
        raise SourceError(reason, f"cannot read the module {path}: {error.strerror or error}") from None


def _opened(stack: ExitStack, root: Path, path: str) -> int:
    """Return the file, opened component by component from the directory."""
    above = [_keep(stack, os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))]
    left, links = _parts(path, path), 0
    while left:
        name = left.pop(0)
        if name == "..":
            if len(above) == 1:
                raise _outside(path)
            above.pop()
            continue
        try:
            target = os.readlink(name, dir_fd=above[-1])
        except OSError:  # not a link, or missing: the open call below reports which
            if not left:
                return _keep(stack, os.open(name, _FILE, dir_fd=above[-1]))
            above.append(_keep(stack, os.open(name, _DIRECTORY, dir_fd=above[-1])))
            continue
        links += 1
        if links > _LINKS:
            raise SourceError(SourceReason.NOT_FOUND, f"the module {path} is behind more than {_LINKS} links")
        left = _parts(target, path) + left
    raise SourceError(SourceReason.NOT_FOUND, f"the module {path} is a directory: name a file in it")


def _parts(path: str, requested: str) -> list[str]:
    if path.startswith("/") or "\0" in path:
        raise _outside(requested)
    return [part for part in path.split("/") if part not in {"", "."}]


def _keep(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _outside(path: str) -> SourceError:
    message = f"the module {path} is outside the directory of modules: use a path inside it"
    return SourceError(SourceReason.NOT_ALLOWED, message)


def _content(descriptor: int, path: str) -> bytes:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(SourceReason.NOT_FOUND, f"the module {path} is not a file")
    if found.st_size > MOST_BYTES:
        raise too_large(f"the module {path}")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise too_large(f"the module {path}")
    return content
